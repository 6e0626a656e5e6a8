"""All that one app tells: its traces, metrics and logs, put together."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

from rxjobs.definition import Definition
from rxjobs.errors import InvalidOption
from rxjobs.event_stream import EventStream
from rxjobs.perform import Middleware
from rxjobs.telemetry import names
from rxjobs.telemetry.enqueuing import Enqueuing
from rxjobs.telemetry.metrics import Metrics
from rxjobs.telemetry.providers import Telemetry
from rxjobs.telemetry.quiet import node_starts
from rxjobs.telemetry.telling import Telling
from rxjobs.telemetry.tracing import Tracing

PORT = 5432


class Signals:
    """What an app hands to whatever listens to it: by its own providers, or the process's."""

    def __init__(
        self,
        telemetry: Telemetry,
        definitions: Mapping[str, Definition[..., Any]],
        queues_taken: Container[str],
        events: EventStream,
    ) -> None:
        if not isinstance(telemetry, Telemetry):
            raise InvalidOption(f"telemetry takes rj.Telemetry(...), not {telemetry!r:.100}")
        self._tracing = Tracing(telemetry)
        self._enqueuing = Enqueuing(self._tracing)
        telling = Telling(telemetry, self._tracing)
        self.metrics = Metrics(definitions, telemetry, queues=lambda: _Own(definitions, queues_taken), beside=telling.hear)
        events.listen(self.metrics.hear, self.metrics)

    def middleware(self, definition: Definition[..., Any]) -> Middleware:
        """The span around each attempt at jobs of one type."""
        return self._tracing.middleware(definition)

    @property
    def around_inserts(self) -> list[Callable[..., Any]]:
        """What wraps each call that enqueues, the outermost first."""
        return [self._enqueuing.around_insert, self.metrics.around_insert]

    node_starts = staticmethod(node_starts)
    """The context manager in which a node starts, so that what it asks by itself begins no traces."""

    def opened(self, dsn: str, client: str) -> None:
        """The app works with this database, under this id."""
        self._tracing.server = {**server_of(dsn), names.CLIENT_ID: client}


class _Own:
    """The queues that an app names itself."""

    def __init__(self, definitions: Mapping[str, Definition[..., Any]], taken: Container[str]) -> None:
        self._definitions = definitions
        self._taken = taken

    def __contains__(self, queue: object) -> bool:
        return queue in self._taken or any(definition.how.queue == queue for definition in self._definitions.values())


def server_of(dsn: str) -> dict[str, str | int]:
    """The address of a database as attributes; nothing where the DSN does not say, and never more than address and port."""
    try:
        found = urlsplit(dsn)
        asked = parse_qs(found.query)
        host = found.hostname or asked.get("host", [""])[0]
        port = found.port or int(asked.get("port", [PORT])[0])
    except ValueError:
        return {}
    return {names.SERVER_ADDRESS: host, names.SERVER_PORT: port} if host else {}
