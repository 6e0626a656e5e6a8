"""The files that the demo indexes: the standard library of the Python that runs it."""

from __future__ import annotations

import os
import sysconfig
from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from rxjobs.errors import InvalidOption

PLENTY = 1_200
"""How many Python files make a show; a distribution may leave out the library's own tests, which are half of it."""
NOT_ITS_OWN = frozenset({"__pycache__", "site-packages", "dist-packages"})


class SourceFile(msgspec.Struct, frozen=True):
    """A file, and its path as shown: relative to the folder it was found in."""

    name: str
    path: Path


def is_python(path: Path) -> bool:
    """Whether a file looks like Python source."""
    return path.suffix == ".py"


def find_files(limit: int | None = None) -> list[SourceFile]:
    """The files of the standard library, in order; the first `limit` of them. Raises InvalidOption where there are none."""
    if limit is not None and limit < 1:
        raise InvalidOption(f"the demo indexes at least 1 file, not {limit}")
    root = Path(sysconfig.get_path("stdlib"))
    files = list(_walk(root))
    missing = PLENTY - sum(is_python(file.path) for file in files)
    if missing > 0:
        installed = (file for file in _walk(Path(sysconfig.get_path("purelib"))) if is_python(file.path))
        files += islice(installed, missing)
    if not files:
        raise InvalidOption(f"the demo indexes Python's standard library, and there are no files in {root}")
    return files[:limit]


def _walk(root: Path) -> Iterator[SourceFile]:
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(set(folders) - NOT_ITS_OWN)
        for name in sorted(names):
            path = Path(folder, name)
            yield SourceFile(path.relative_to(root).as_posix(), path)
