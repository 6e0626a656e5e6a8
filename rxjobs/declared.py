"""A pipeline as it is declared, by its name."""

from __future__ import annotations

from typing import Any

from reactivex import Observable

from rxjobs.checks import checked_name
from rxjobs.errors import InvalidOption

CONCURRENCY = 50
"""How many jobs a queue's default pipeline runs at once."""


class Pipeline:
    """A declared pipeline and its name."""

    def __init__(self, name: str, stream: Observable[Any]) -> None:
        self.name = name
        self.stream = stream


def named(stream: Any, name: str) -> Pipeline:
    """A pipeline by the name it has, or else this one; raises InvalidOption for what is no Observable."""
    if isinstance(stream, Pipeline):
        return stream
    if not isinstance(stream, Observable):
        raise InvalidOption(
            f"a pipeline is an Observable, such as app.source(queue).pipe(rj.execute(), rj.ack()), not {stream!r:.100}"
        )
    return Pipeline(checked_name("a pipeline", name), stream)
