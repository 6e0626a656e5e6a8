"""The other side of docs/from-oban.md, where Oban can be installed."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec

import pytest

from tests.docs.blocks import all_blocks

(THEIRS,) = [block.code for block in all_blocks()["docs/from-oban.md"] if block.title == "theirs.py"]


@pytest.mark.skipif(find_spec("oban") is None, reason="oban needs Python 3.12: pip install oban, and it runs")
def test_obans_own_side_ends_as_the_page_says(tmp_path, dsn):
    (tmp_path / "theirs.py").write_text(THEIRS)
    ran = subprocess.run(
        [sys.executable, "theirs.py"],
        cwd=tmp_path,
        env={**os.environ, "RXJOBS_DSN": dsn},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ran.returncode == 0, ran.stderr
