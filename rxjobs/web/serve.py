"""Serve a dashboard until a signal."""

from __future__ import annotations

import logging
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import uvicorn

from rxjobs.app import App
from rxjobs.errors import InvalidOption
from rxjobs.signals import taking
from rxjobs.web.options import WebOptions
from rxjobs.web.site import site


async def serve(app: App, options: WebOptions, ready: Callable[[str], object]) -> None:
    """Open the app and serve its pages; `ready` is told where it listens. Raises InvalidOption where nothing can listen there."""
    logging.getLogger("uvicorn.error").setLevel(logging.WARNING)
    listening = _listen(options)
    with listening:
        async with app:
            how = uvicorn.Config(
                site(app, options), log_config=None, access_log=False, server_header=False, lifespan="off", ws="none",
                timeout_graceful_shutdown=3, proxy_headers=False,
            )  # fmt: skip
            ready(_address(options, listening))
            await _Server(how).serve(sockets=[listening])


class _Server(uvicorn.Server):
    """Ends in order at SIGTERM and SIGINT, and not by them."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        with taking((signal.SIGTERM, signal.SIGINT), self._end):
            yield

    def _end(self, number: signal.Signals) -> None:
        self.should_exit = True


def _listen(options: WebOptions) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(options.host, options.port, type=socket.SOCK_STREAM)[0]
        listening = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InvalidOption(f"--host {options.host!r} is no address of this machine: {error}") from error
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind(address)
    except OSError as error:
        listening.close()
        raise InvalidOption(f"nothing can listen at {options.host}:{options.port}: {error}; --port names another, 0 any") from error
    return listening


def _address(options: WebOptions, listening: socket.socket) -> str:
    host = f"[{options.host}]" if ":" in options.host else options.host
    return f"http://{host}:{listening.getsockname()[1]}"
