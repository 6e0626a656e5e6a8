"""Tests on virtual time: an hour of sleeping is over at once."""

from __future__ import annotations

import functools
from collections.abc import Callable, Coroutine
from typing import Any

from rxjobs.testing import virtually


def on_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Have a coroutine test run on a loop whose clock jumps; it fails where a real loop would hang."""

    @functools.wraps(test)
    def run(*args: Any, **kwargs: Any) -> None:
        virtually(test(*args, **kwargs))

    return run
