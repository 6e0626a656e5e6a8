"""What is kept of an exception."""

from __future__ import annotations

import time
import tracemalloc
from typing import NoReturn

import pytest

from rxjobs.failure import (
    MESSAGE_LIMIT,
    TRACEBACK_LIMIT,
    TYPE_LIMIT,
    Failure,
    RemoteFailure,
    describe,
    describe_here,
    qualified_name,
)
from tests.numbers import at_most


class Unprintable(Exception):
    def __init__(self, error: BaseException) -> None:
        self.error = error

    def __str__(self) -> NoReturn:
        raise self.error


class NoText(Exception):
    def __str__(self) -> str:
        return 5  # type: ignore[return-value]


def caught(function: object, *args: object) -> BaseException:
    try:
        function(*args)  # type: ignore[operator]
    except BaseException as error:  # whatever it is
        return error
    raise AssertionError("it did not raise")


def fail(error: BaseException) -> NoReturn:
    raise error


def test_it_keeps_class_message_and_traceback():
    failure = describe(caught(fail, ValueError("no such user")))
    assert (failure.type, failure.message) == ("ValueError", "no such user")
    assert failure.traceback.startswith("Traceback (most recent call last):\n")
    assert "in fail" in failure.traceback
    assert failure.traceback.rstrip().endswith("ValueError: no such user")


def test_a_class_that_is_not_builtin_is_named_with_its_module():
    assert describe(NoText()).type == f"{__name__}.NoText"
    assert qualified_name(TimeoutError) == "TimeoutError"


@pytest.mark.parametrize("error", [ValueError("worse"), SystemExit(1), KeyboardInterrupt(), RecursionError()])
def test_an_exception_that_cannot_be_printed_is_described_all_the_same(error):
    failure = describe(caught(fail, Unprintable(error)))
    assert failure.type == f"{__name__}.Unprintable"
    assert type(error).__name__ in failure.message
    assert "in fail" in failure.traceback


def test_a_text_that_is_none_is_described():
    assert "TypeError" in describe(NoText()).message


def test_a_huge_message_keeps_its_end():
    failure = describe(caught(fail, ValueError("x" * 10_000_000 + "the end")))
    assert len(failure.message) < MESSAGE_LIMIT + 100
    assert failure.message.endswith("the end")
    assert "characters left out" in failure.message
    assert len(failure.traceback) < TRACEBACK_LIMIT + 100


def test_fifty_megabytes_in_every_link_of_a_chain_are_cut_before_they_are_put_together():
    """F23: what is kept of it is little, and so is what it takes to get there."""
    error: BaseException = ValueError("x" * 50_000_000)
    for _ in range(10):
        error = caught(_raise_from, ValueError("x" * 50_000_000 + "the end"), error)
    began = time.monotonic()
    describe(error)
    at_most("to describe it", time.monotonic() - began, 1)
    tracemalloc.start()
    failure = describe(error)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(failure.message) < MESSAGE_LIMIT + 100
    assert len(failure.traceback) < TRACEBACK_LIMIT + 100
    assert failure.traceback.rstrip().endswith("the end")
    assert most < 5_000_000


@pytest.mark.parametrize("width", [1, 2, 5])
def test_groups_in_groups_without_end_cost_little(width):
    """F23: thirty levels of five exceptions each are more than anybody can print, and take no memory where they are shared."""
    error: BaseException = ValueError("the cause")
    for n in range(1000 if width == 1 else 30):
        error = BaseExceptionGroup(f"group {n}", [error] * width)
    began = time.thread_time()
    failure = describe(caught(fail, error))
    assert time.thread_time() - began < 5
    assert failure.message.startswith("group ")
    assert "in fail" in failure.traceback


class _Odd(type):
    @property
    def __module__(cls) -> NoReturn:  # type: ignore[override]
        raise RuntimeError("from nowhere")


def test_the_name_of_a_class_is_text_that_postgresql_can_hold_whatever_it_is():
    """F23: NUL, a lone surrogate, ten megabytes, no text at all."""
    for name in ("a\x00b", "a\ud800b", "x" * 10_000_000):
        kind = type("Kind", (Exception,), {"__qualname__": name, "__module__": name})
        text = describe(kind("message")).type
        assert "\x00" not in text
        assert len(text.encode()) < TYPE_LIMIT + 100
    assert "Kind" in describe(type("Kind", (Exception,), {"__module__": 5})("message")).type
    assert describe(_Odd("Kind", (Exception,), {})("message")).message == "message"


def test_what_was_described_where_it_was_raised_is_not_printed_again():
    """F23: whoever waits for a thread must not print what may never come to an end there."""
    error = caught(fail, ValueError("once"))
    described = describe_here(error)
    error.args = ("changed",)
    assert describe(error) is described
    assert describe(error).message == "changed"


class Closed(Exception):
    __slots__ = ()

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError("nothing can be set")


def test_what_takes_no_note_is_described_later():
    error = caught(fail, Closed("message"))
    describe_here(error)
    assert describe(error).message == "message"


@pytest.mark.parametrize("text", ["a\x00b", "a\ud800b", "\x00" * 100, "😀\udfff"])
def test_what_postgresql_cannot_hold_is_escaped(text):
    failure = describe(caught(fail, ValueError(text)))
    for kept in (failure.message, failure.traceback):
        assert "\x00" not in kept
        kept.encode("utf-8")


def test_a_chain_of_ten_thousand_causes_costs_little():
    error: BaseException = ValueError(0)
    for n in range(10_000):
        error = caught(_raise_from, ValueError(n), error)
    began = time.thread_time()
    failure = describe(error)
    assert time.thread_time() - began < 1
    assert failure.message == "9999"
    assert len(failure.traceback) < TRACEBACK_LIMIT + 100


def _raise_from(error: BaseException, cause: BaseException) -> NoReturn:
    raise error from cause


def test_a_chain_in_a_circle_ends():
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    assert describe(first).message == "first"


def test_the_cause_comes_before_what_it_caused_and_a_suppressed_context_not_at_all():
    def both() -> None:
        try:
            fail(KeyError("cause"))
        except KeyError as error:
            raise ValueError("effect") from error

    def neither() -> None:
        try:
            fail(KeyError("cause"))
        except KeyError:
            raise ValueError("effect") from None

    text = describe(caught(both)).traceback
    assert text.index("KeyError: 'cause'") < text.index("ValueError: effect")
    assert "KeyError" not in describe(caught(neither)).traceback


def test_recursion_without_end_is_described_by_its_last_frames():
    def deeper() -> None:
        deeper()

    failure = describe(caught(deeper))
    assert failure.type == "RecursionError"
    assert failure.traceback.count("in deeper") <= 60


def test_what_was_described_elsewhere_is_kept_as_it_is():
    failure = Failure("module.Kind", "message", "traceback")
    assert describe(RemoteFailure(failure)) is failure
