"""The memory of processes: how much one takes, and a limit to it."""

from __future__ import annotations

import os
import sys
from contextlib import suppress

PAGE = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


def memory_of(pid: int | None) -> int:
    """The bytes of address space that a process has taken; 0 where the system does not tell."""
    return _pages(pid, 0) * PAGE


def resident() -> int:
    """The bytes of memory that this process takes; where the system tells only that, the most it ever took."""
    return _pages(os.getpid(), 1) * PAGE or _most()


def limit_memory(more: int) -> None:
    """Let this process take so many bytes more than it has: what asks for more is refused. Linux; elsewhere it does nothing."""
    has = memory_of(os.getpid())
    if has:
        import resource

        _, most = resource.getrlimit(resource.RLIMIT_AS)
        # a limit of the machine's own may be lower
        with suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_AS, (has + more, most))


def _pages(pid: int | None, field: int) -> int:
    try:
        with open(f"/proc/{pid}/statm", "rb") as statm:
            return int(statm.read().split()[field])
    except (OSError, ValueError, IndexError):
        return 0


def _most() -> int:
    try:
        import resource
    except ImportError:  # Windows
        return 0
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024
