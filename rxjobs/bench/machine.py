"""What machine it is: a figure says nothing without it."""

from __future__ import annotations

import os
import platform
import re
import sys
from contextlib import suppress
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """The machine that the bench and its workers run on, and what they run in."""

    cores: int
    """Those that this process may use."""
    cpu: str
    memory_gb: float | None
    system: str
    python: str
    uvloop: str | None
    """Its version, or None where it is not installed: asyncio's own loop is used then."""
    asyncpg: str
    rxjobs: str
    load: float | None
    """How many processes wanted a core in the last minute, before anything was measured: near 0, or the figures are noisy."""

    @property
    def told(self) -> str:
        """It in one line."""
        loop = f"uvloop {self.uvloop}" if self.uvloop else "asyncio's loop"
        return f"{self.cores} cores of {self.cpu}, {self.system}, {self.python}, {loop}"


def this_machine() -> Machine:
    """The one we are on."""
    return Machine(
        cores=len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1,
        cpu=_cpu(),
        memory_gb=_memory(),
        system=f"{platform.system()} {platform.release()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        uvloop=_version("uvloop"),
        asyncpg=version("asyncpg"),
        rxjobs=version("rxjobs"),
        load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else None,
    )


def _cpu() -> str:
    with suppress(OSError):
        found = re.search(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
        if found:
            return found[1].strip()
    return platform.processor() or platform.machine()


def _memory() -> float | None:
    try:
        return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9, 1)
    except (AttributeError, ValueError, OSError):
        return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
