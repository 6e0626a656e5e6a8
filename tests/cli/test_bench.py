"""`rxjobs bench` as its user sees it, with so few jobs that no figure means anything."""

from __future__ import annotations

import contextlib
import os
import pty
import signal
import subprocess
import sys
from xml.etree import ElementTree

import psutil
import pytest

from tests.cli.conftest import SCRIPT, Commands, until
from tests.servers import folder_for_a_server

NOWHERE = "postgresql://me:secret@127.0.0.1:1/x"
MISTAKES = [
    (["nonsense"], ["nonsense", "throughput", "rxjobs bench --help"]),
    (["--jobs", "2"], ["--jobs", ">= 20"]),
    (["--rounds", "0"], ["--rounds", ">= 1"]),
    (["--telemetry", "loud"], ["'loud'", "sampled-10"]),
    (["--plot", "rates.jpeg"], ["'rates.jpeg'", ".svg", ".png"]),
    (["--plot", "nowhere/rates.svg"], ["nowhere'", "folder"]),
    (["latency", "--plot", "rates.svg"], ["latency", "throughput", "backlog"]),
    (["--schema", "No Name"], ["No Name", "lower-case"]),
    (["--dsn", NOWHERE], ["127.0.0.1:1", "me:***@", "--dsn"]),
    (["--dsn", "mysql://x"], ["mysql", "--dsn"]),
]


@pytest.mark.parametrize(("arguments", "named"), MISTAKES, ids=lambda value: " ".join(value))
def test_a_mistake_is_told_in_one_line(bare: Commands, arguments, named):
    ran = bare("bench", *arguments)
    assert (ran.code, ran.out, ran.err.count("\n")) == (2, "", 1), ran
    assert ran.err.startswith("rxjobs: ")
    assert "secret" not in ran.err
    assert all(word in ran.err for word in named), ran.err


def test_without_matplotlib_it_says_which_extra_brings_it(bare: Commands):
    bare.write("sitecustomize.py", "import sys\nsys.modules['matplotlib'] = None\n")
    with bare.start("bench", "--plot", "rates.svg", environment={"PYTHONPATH": str(bare.folder)}) as process:
        assert process.wait(60) == 2
    assert bare.read("stderr").count("\n") == 1
    assert "rxjobs[bench]" in bare.read("stderr")


def test_its_document_says_where_and_how_and_what_in_each_round_and_a_picture_is_drawn(bare: Commands):
    ran = bare("bench", "backlog", "--rounds", "2", "--jobs", "20", "--plot", "rates.svg", "--json")
    assert (ran.code, ran.err.count("\n")) == (0, 8), ran
    found = ran.document
    assert found["machine"]["cores"] >= 1
    assert found["machine"]["python"].endswith(".".join(map(str, sys.version_info[:3])))
    assert found["server"]["server_version"]
    assert found["server"]["embedded"] is False
    assert (found["wanted"]["rounds"], found["missing"]) == (2, [])
    rates = [one for one in found["figures"] if one["measure"] == "rate"]
    assert [(one["x"], one["runner"]) for one in rates] == [(20, "raw"), (20, "rxjobs"), (100, "raw"), (100, "rxjobs")]
    for one in rates:
        assert len(one["found"]["rounds"]) == 2
        assert 0 < one["found"]["least"] <= one["found"]["median"] <= one["found"]["most"]
    raw, ours = rates[:2]
    assert raw["ratio"] is None
    quotients = [mine / limit for mine, limit in zip(ours["found"]["rounds"], raw["found"]["rounds"], strict=True)]
    assert (ours["ratio"]["of"], ours["ratio"]["rounds"]) == ("raw", pytest.approx(quotients))
    picture = ElementTree.fromstring(bare.read("rates.svg"))  # noqa: S314 - our own
    assert picture.tag == "{http://www.w3.org/2000/svg}svg"
    assert schemas(bare) == []


def test_without_a_database_it_brings_its_own_and_leaves_nothing_of_it(bare: Commands):
    with folder_for_a_server() as folder:
        # as root the server has an account of its own, which is to reach what is in there
        folder.chmod(0o755)
        ran = bare("bench", "--telemetry", "metrics", "--jobs", "20", environment={"RXJOBS_DSN": "", "TMPDIR": str(folder)})
        assert ran.code == 0, ran
        assert list(folder.iterdir()) == []
    assert [line.split(": ")[0] for line in ran.err.splitlines()] == ["telemetry, off, rxjobs", "telemetry, metrics, rxjobs"]
    for part in ("Telemetry", "CPU µs/job", "÷ off", "cores of", "embedded PostgreSQL"):
        assert part in ran.out, ran.out


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=lambda value: None)
def test_who_ends_it_finds_its_schema_gone_and_no_process_left(bare: Commands, number: int, code: int):
    with bare.start("bench", "throughput", "--jobs", "20") as bench:
        until(psutil.Process(bench.pid).children)
        family = psutil.Process(bench.pid).children()
        assert schemas(bare) == ["rxjobs_bench"]
        bench.send_signal(number)
        assert bench.wait(60) == code
    assert schemas(bare) == []
    assert psutil.wait_procs(family, timeout=5)[1] == []
    assert "Traceback" not in bare.read("stderr")


def test_on_a_terminal_there_is_a_bar(bare: Commands):
    ours, theirs = pty.openpty()
    environment = {**bare.environment, "TERM": "xterm", "COLUMNS": "120"}
    bench = subprocess.Popen(
        [SCRIPT, "bench", "--telemetry", "off", "--jobs", "20"],
        stdin=theirs, stdout=subprocess.PIPE, stderr=theirs, cwd=bare.folder, env=environment,
    )  # fmt: skip
    os.close(theirs)
    seen = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while part := os.read(ours, 65536):
            seen += part
    os.close(ours)
    out, _ = bench.communicate(timeout=60)
    assert bench.returncode == 0, seen.decode()
    assert "━".encode() in seen
    assert seen.rindex(b"\x1b[?25h") > seen.rindex(b"\x1b[?25l"), "the cursor was left hidden"
    assert "CPU µs/job".encode() in out


def schemas(bare: Commands) -> list[str]:
    """The schemas of the bench that are there."""
    return [row["nspname"] for row in bare.sql("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'rxjobs%'")]
