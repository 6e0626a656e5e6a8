"""What a child process of `in_processes` needs of Django: to be imported there is to start it, before any `jobs.py` is."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import django
from django.db import close_old_connections

django.setup()


@contextmanager
def tidy() -> Iterator[None]:
    """A job inside uses the ORM: as after a request, a connection is closed that is broken or older than CONN_MAX_AGE."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
