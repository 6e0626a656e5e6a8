"""A web application as gunicorn preloads it: it has enqueued, and so has a thread and connections, before workers are forked."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable

import rxjobs as rj

app = rj.App()


@app.job(name="work")
def work(n: int) -> None: ...


app.sync.enqueue(work.new(n=-1))


def web(environ: dict[str, str], start: Callable[[str, list[tuple[str, str]]], object]) -> Iterable[bytes]:
    """`POST /7` enqueues a job of that number; says which process did."""
    row = app.sync.enqueue(work.new(n=int(environ["PATH_INFO"].strip("/"))))
    start("200 OK", [("Content-Type", "text/plain")])
    return [f"{os.getpid()} {row.id}".encode()]
