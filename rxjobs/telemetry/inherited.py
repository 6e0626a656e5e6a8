"""What the child processes of an executor set up of OpenTelemetry's SDK: what their parent did, for spans and logs.

A child sends what is left when it is asked to end. What it still has when it is killed, is lost.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

CHILD_SECONDS = 0.4
"""How long a child takes at its end to send what is left: it is killed soon after."""


class Inherited(msgspec.Struct, frozen=True):
    """What a process said of itself when it set the SDK up."""

    service_name: str
    instance: str | None
    label: str
    baggage_attributes: tuple[str, ...]


_of_this_process: Inherited | None = None


def leave(what: Inherited | None) -> None:
    """Have children of this process set the SDK up too; None: no longer."""
    global _of_this_process
    _of_this_process = what


def inheritance() -> Inherited | None:
    """What goes to a child; None where this process has not set the SDK up."""
    return _of_this_process


@contextmanager
def taken(what: Inherited | None) -> Iterator[None]:
    """In a child: spans and logs go where the parent's go, until the child ends. Its metrics would be the parent's once more."""
    if what is None:
        yield
        return
    from rxjobs.telemetry.sdk import configure  # here, since most children have no use for it

    end = configure(
        what.service_name, what.instance, label=what.label, baggage_attributes=what.baggage_attributes, tells_metrics=False,
        seconds=CHILD_SECONDS,
    )  # fmt: skip
    try:
        yield
    finally:
        end()
