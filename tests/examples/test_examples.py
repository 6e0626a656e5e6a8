"""Every example runs as it stands."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("[0-9]*.py"))

SAYS = {
    "01_hello": ["Hello, Ada! This is attempt 1.", "is completed"],
    "02_pipeline": ["Ada", "{'user_id': -1} Cancel", "{'user_id': 5} Complete"],
    "03_transaction": ["order 2 was rolled back", "jobs that wait: [{'order': 1}]"],
    "04_embedded_in_fastapi": ["'state': 'available'", "'state': 'completed', 'attempt': 1"],
    "05_events_to_jobs": ["3 alarms enqueued", "alarm: 35.2 °C"],
    "06_a_source_that_limits_itself": ["12 jobs", "in four periods or more: True"],
    "07_a_source_that_buffers": ["taken without anybody listening: 5 of 8", "worked on: 25 the first early 0 the last event 19"],
    "08_batch_database_writer": ["rows written: 49", "not written: {'sensor': 'sensor 1', 'celsius': -300.0} below absolute zero"],
    "09_webhooks": ["from closed to open", "from half-open to closed", "delivered: 6 each once: True"],
    "10_file_writer": ["lines written: 300", *(f"{letter}.txt 100 in order: True" for letter in "abc")],
    "11_social_media": [
        "posts: 60",
        "{'harbour': 20, 'meadow': 20, 'square': 20}",
        "#chess, #market",
        "letters:\n14\n",
        "written: 60",
    ],
    "12_embedded_in_starlette": ["'state': 'available'", "'state': 'completed', 'attempt': 1"],
}


def test_each_example_is_tried() -> None:
    assert [path.stem for path in EXAMPLES] == list(SAYS)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs_as_it_stands(path: Path, dsn: str) -> None:
    environ = {**os.environ, "RXJOBS_DSN": dsn, "RXJOBS_MIGRATE": "true", "PYTHONWARNINGS": "error"}
    ran = subprocess.run([sys.executable, str(path)], env=environ, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    for words in SAYS[path.stem]:
        assert words in ran.stdout
    assert ran.stderr == ""


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_short(path: Path) -> None:
    assert len(path.read_text("utf-8").splitlines()) < 80
