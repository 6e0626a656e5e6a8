"""What rxjobs logs about a job stays on its own line, whoever formats it."""

import ast
import io
import logging
import re
from pathlib import Path

import asyncpg
import pytest

import rxjobs as rj
from rxjobs.log_lines import Indented, escape, logger
from tests.waiting import until

FORGED = "x\n2026-01-01 00:00:00 INFO all is well\r\x1b]0;owned\x07\x1b[2J\x9b31m\u202e\u2028\x85end"


@pytest.fixture
def lines():
    """What a user's own plain logging writes, line by line."""
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logging.Formatter("LINE %(levelname)s %(name)s %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    yield lambda: stream.getvalue().split("\n")[:-1]
    root.removeHandler(handler)


def are_clean(lines):
    return all(line.startswith(("LINE ", "    ")) and line.isprintable() for line in lines)


@pytest.mark.parametrize(
    "character", [*map(chr, range(32)), "\x7f", *map(chr, range(0x80, 0xA0)), *"\u2028\u2029\u202e\u2066\u200f\ud800"]
)
def test_what_is_not_seen_is_written_out(character):
    assert escape(f"a{character}b").isprintable()
    assert escape("plain text, ö, \N{PILE OF POO}") == "plain text, ö, \N{PILE OF POO}"


def test_names_and_errors_cannot_break_a_line(lines):
    log = logger("rxjobs.source")
    log.warning("job %d (%s) of queue %r: %s", 1, FORGED, FORGED, ValueError(FORGED))
    log.warning("%d of %g, %s", 3, 0.5, [FORGED])
    assert len(lines()) == 2
    assert are_clean(lines())
    assert "\\n2026" in lines()[0]


def test_the_lines_of_a_traceback_are_indented(lines):
    try:
        raise ValueError(FORGED)
    except ValueError:
        logger("rxjobs").exception("it failed: %s\n%s", FORGED, Indented(FORGED))
    assert len(lines()) > 5
    assert are_clean(lines())


class Unprintable(Exception):
    def __str__(self):
        raise RuntimeError


def test_an_error_that_cannot_be_printed_is_still_logged(lines):
    logger("rxjobs").error("it failed: %s", Unprintable(), exc_info=Unprintable())
    assert "(a Unprintable that could not be printed)" in lines()[0]


def test_the_loggers_of_others_are_left_alone(lines):
    logger("rxjobs")
    logging.getLogger("rxjobsters").warning("%s", "a\nb")
    assert lines() == ["LINE WARNING rxjobsters a", "b"]


def test_every_logger_of_rxjobs_is_one_of_those():
    """However late its module is imported: one that is not would let a row forge lines."""
    plain = re.compile(r"""getLogger\(["']rxjobs""")
    found = [path.name for path in Path(rj.__file__).parent.rglob("*.py") if plain.search(path.read_text("utf-8"))]
    assert found == ["run.py"]  # of the demo, which listens to them


def test_no_message_is_put_together_before_it_is_logged():
    """Only what is an argument is escaped: a message that holds data itself would come through as it is."""
    levels = {"debug", "info", "warning", "error", "exception", "critical"}
    found = 0
    for path in Path(rj.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            match node:
                case ast.Call(func=ast.Attribute(value=ast.Name(id="log" | "logger"), attr=level), args=[message, *_]) if (
                    level in levels
                ):
                    found += 1
                    assert isinstance(message, ast.Constant), f"{path.name}:{node.lineno}"
    assert found > 20


async def test_rows_nodes_and_jobs_cannot_forge_a_line(dsn, lines):
    app = rj.App(dsn, migrate=True, poll_seconds=0.1, rescue_seconds=0.1, lease_seconds=1, heartbeat_seconds=0.2)
    ended: list[object] = []
    app.events.subscribe(lambda event: ended.append(event) if event.name in ("job.discard", "node.lost") else None)

    def wait(attempt: int, error: BaseException) -> float:
        raise ValueError(FORGED)

    @app.job(name="work", backoff=wait)
    async def work(n: int = 0) -> None:
        raise ValueError(FORGED)

    async with app:
        connection = await asyncpg.connect(dsn)
        await connection.execute("INSERT INTO rxjobs.live_jobs (type, args) VALUES ('work', $1)", '{"a\\nb\\u001b[2J": 1}')
        await connection.execute(
            "INSERT INTO rxjobs.nodes (id, label, pid, expires_at) VALUES (gen_random_uuid(), $1, 1, now() - interval '1 h')",
            FORGED,
        )
        await connection.close()
        async with app.running():
            await work.enqueue()
            await until(lambda: all(word in "\n".join(lines()) for word in ("cannot run", "is gone, and", "the backoff of")))
    assert are_clean(lines())
