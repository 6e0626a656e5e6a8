"""Files that are made by a program and committed: written anew, or compared with `--check`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path


def write_or_check(files: Mapping[Path, str], command: str, arguments: list[str] | None = None) -> int:
    """Write the files, or with --check say which differ; gives the exit code."""
    parser = argparse.ArgumentParser(prog=f"python -m {command}")
    parser.add_argument("--check", action="store_true", help="write nothing; exit 1 if a file is not what would be written")
    if parser.parse_args(arguments).check:
        old = [path for path, text in files.items() if not path.exists() or path.read_text("utf-8") != text]
        for path in old:
            sys.stderr.write(f"{path.name} is out of date; run: python -m {command}\n")
        return 1 if old else 0
    for path, text in files.items():
        path.write_text(text, "utf-8")
    return 0
