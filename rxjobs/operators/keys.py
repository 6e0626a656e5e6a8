"""What jobs are told apart by: a function of a job, or the dotted name of something it carries."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from typing import Any

from rxjobs.errors import InvalidOption
from rxjobs.job import Job

By = Callable[[Job], Any] | str

ROOTS = ("args", "assigns", "attempt", "meta", "priority", "queue", "tags", "type")


def key_of(kind: str, by: Any) -> Callable[[Job], Hashable]:
    """The function that gives a job's key; raises InvalidOption for what names none.

    A dotted name such as "args.tenant" gives None for jobs that have nothing of that name.
    """
    if isinstance(by, str):
        return _named(kind, by)
    if callable(by):
        return by  # type: ignore[no-any-return]  # what it gives is hashed where it is used
    raise InvalidOption(f'rj.{kind}: by is a function of a job, or a name such as "args.tenant", not {by!r}')


def _named(kind: str, by: str) -> Callable[[Job], Hashable]:
    root, *rest = by.split(".")
    if root not in ROOTS or not all(rest) or (root in ("args", "assigns", "meta") and not rest):
        raise InvalidOption(
            f'rj.{kind}: by names what a job carries, such as "args.tenant", "meta.tenant" or "queue", beginning with one of '
            f"{', '.join(ROOTS)}, not {by!r}"
        )

    def key(job: Job) -> Any:
        found: Any = getattr(job, root)
        for name in rest:
            found = found.get(name) if isinstance(found, Mapping) else getattr(found, name, None)
        return tuple(found) if root == "tags" else found

    return key
