"""Facts that are waited for."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any


async def until(fact: Callable[[], Any], *, seconds: float = 60.0, every: float = 0.02) -> Any:
    """Wait for a fact, and give what it is; fails with what it was last."""
    found = None
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = fact()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(every)
    except TimeoutError:
        raise AssertionError(f"not true after {seconds:g} s: {inspect.getsource(fact).strip()} is {found!r}") from None
