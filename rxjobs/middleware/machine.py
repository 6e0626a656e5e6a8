"""pybreaker's state machine. Imported when a node starts, or a breaker needs it: who only declares and enqueues jobs does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pybreaker

from rxjobs.definition import Breaker
from rxjobs.middleware.shared_storage import CLOSED, SharedStorage

Machine = pybreaker.CircuitBreaker


def machine(how: Breaker, storage: SharedStorage, moved: Callable[[str, str], object]) -> Machine:
    """The state machine of one breaker, on its storage; `moved` is told of each move: from which state, to which."""
    return pybreaker.CircuitBreaker(
        fail_max=how.fail_max,
        reset_timeout=how.reset_timeout,
        success_threshold=how.probes,
        listeners=[_Teller(moved)],
        state_storage=cast(pybreaker.CircuitBreakerStorage, storage),  # it has all that is asked of one
        throw_new_error_on_trip=False,
    )


class _Teller(pybreaker.CircuitBreakerListener):
    """Passes the state machine's moves on."""

    def __init__(self, moved: Callable[[str, str], object]) -> None:
        self._moved = moved

    def state_change(self, cb: pybreaker.CircuitBreaker, old_state: Any, new_state: Any) -> None:
        self._moved(old_state.name if old_state else CLOSED, new_state.name)
