"""Facts that are waited for."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

SELDOM = 0.1
"""Seconds between two looks, when it has taken a while: what looks at a database takes time from whoever is waited for."""


async def until(fact: Callable[[], Any], *, seconds: float = 60.0, every: float = 0.02) -> Any:
    """Wait for a fact, and give what it is; fails with what it was last. What takes long is looked at less and less often."""
    found = None
    began = time.monotonic()
    try:
        async with asyncio.timeout(seconds):
            while True:
                found = fact()
                if inspect.isawaitable(found):
                    found = await found
                if found:
                    return found
                await asyncio.sleep(max(every, min(SELDOM, (time.monotonic() - began) / 20)))
    except TimeoutError:
        raise AssertionError(f"not true after {seconds:g} s: {inspect.getsource(fact).strip()} is {found!r}") from None
