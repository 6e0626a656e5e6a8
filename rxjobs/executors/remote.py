"""A call in another process: what is sent there, what runs there, and what is sent back. All of it is JSON text.

A function is named by its path, "module:qualname", which comes from the code that runs here and never from a row. What
a job raised arrives as text and is never made into its class again.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from functools import cache, lru_cache, reduce
from typing import Any

import msgspec

from rxjobs.arguments import Arguments
from rxjobs.calls import Call, UnstorableResult
from rxjobs.decide import RUN, refuse_unrun
from rxjobs.definition import Definition
from rxjobs.errors import InvalidArguments, InvalidOption, NotOpen
from rxjobs.executors.ran import Ran
from rxjobs.failure import MESSAGE_LIMIT, Failure, RemoteFailure, clean, describe
from rxjobs.job import Job, running_job
from rxjobs.outcome import Cancel, Complete, Discard, Outcome, Release, Retry, Snooze
from rxjobs.payload import dump_untyped, load_untyped
from rxjobs.pickle_codec import hand_over, taken_over
from rxjobs.recording import Results
from rxjobs.secret import as_secrets

Carrier = Callable[[], Mapping[str, str]]
"""Makes what takes a trace context along with a job: a mapping of text."""

Attach = Callable[[Mapping[str, str]], AbstractContextManager[object]]
"""Makes, in the other process, what the job is run within; an importable function."""

Wait = Callable[[Coroutine[Any, Any, Ran]], Ran]
"""Runs a coroutine to its end."""

Tell = Callable[[bytes], object]
"""Sends the parent something."""

Asked = Callable[[], bool]
"""Whether somebody asked a call to stop."""

REPORT = b"%"
"""What the report of a job that runs begins with, unlike its answer."""

VALUE_LIMIT = 64 * 1024 * 1024
"""Bytes of JSON that a result, or a job's assigns, may take."""

OUTCOMES: Mapping[str, type[Outcome]] = {kind.__name__: kind for kind in (Complete, Retry, Snooze, Cancel, Discard, Release)}


class Request(msgspec.Struct, frozen=True, omit_defaults=True):
    """A call, as it is sent."""

    function: str
    job: Job
    takes_job: bool = False
    type: str | None = None
    """The path of the job's own function, where it is another one that is called."""
    timeout: float | None = None
    """Seconds: from where the call begins, which is when it is read."""
    carrier: Mapping[str, str] = {}
    attach: str | None = None
    values: bytes | None = None
    """The arguments, where they are what JSON cannot hold: pickled for this one way."""


class Ending(msgspec.Struct, frozen=True, omit_defaults=True):
    """An outcome, as it is sent."""

    name: str
    fields: dict[str, Any] = {}
    failure: Failure | None = None
    raised: bool = False


class Answer(msgspec.Struct, frozen=True, omit_defaults=True):
    """How a call ended, as it is sent: one of the four, and a result beside an outcome that has one."""

    result: str | None = None
    failure: Failure | None = None
    outcome: Ending | None = None
    unstorable: str | None = None


class Away(msgspec.Struct):
    """What is going on with a job, seen from the process it was sent to."""

    deadline: datetime | None = None
    tell: Tell | None = None
    """Tells the parent something while the job runs, where there is a way."""
    asked: Asked = bool
    """Whether it is to stop, where it can be asked: else it is killed, or never knows."""

    @property
    def cancelled(self) -> bool:
        """Whether it is to stop."""
        return self.asked()

    def report(self, fraction: float, message: str) -> None:
        """Have the parent know how far the job has come; raises NotOpen where it cannot be told."""
        tell = self.tell
        if tell is None:
            raise NotOpen(
                "job.progress(...) cannot be told from a pool of processes given to in_pool, unless it is Dask's or Ray's, nor "
                "when the job has ended; run the job on the event loop, in threads or with in_processes(n)"
            )
        tell(REPORT + _encoder.encode((fraction, message)))


class Target(msgspec.Struct, frozen=True):
    """What a path leads to."""

    function: Callable[..., Any]
    definition: Definition[..., Any] | None = None


_encoder = msgspec.json.Encoder()
_requests = msgspec.json.Decoder(Request)
_answers = msgspec.json.Decoder(Answer)
_reports = msgspec.json.Decoder(tuple[float, str])


def write_request(call: Call, carrier: Mapping[str, str], attach: Attach) -> bytes:
    """The call as JSON; raises InvalidOption where its function cannot be found from another process."""
    job = call.job
    if job.assigns:
        dump_untyped(job.assigns, f"the assigns of job {job.id}", VALUE_LIMIT)
    return _encoder.encode(
        Request(
            path_of_call(call),
            msgspec.structs.replace(job, args={}, definition=None, hold=None),
            call.takes_job,
            _path_of_type(job) if call.takes_job else None,
            None if job.deadline is None else (job.deadline - datetime.now(UTC)).total_seconds(),
            dict(carrier),
            path_of(attach) if carrier else None,
            hand_over(job.args) if job.definition is not None and job.definition.takes_any_values else None,
        )
    )


def read_answer(answer: bytes) -> Ran:
    """How the call ended; raises msgspec.MsgspecError or TypeError for what is no answer."""
    match _answers.decode(answer):
        case Answer(failure=Failure() as failure):
            return Ran(error=RemoteFailure(failure))
        case Answer(unstorable=str(reason)):
            return Ran(UnstorableResult(reason))
        case Answer(outcome=Ending() as ending, result=result):
            outcome = _read_ending(ending, result)
            return Ran(error=outcome) if ending.raised else Ran(outcome)
        case Answer(result=str(result)):
            return Ran(load_untyped(result))
        case _:
            raise msgspec.ValidationError("expected a result, a failure, an outcome or why there is none")


def pass_on(report: bytes, job: Job) -> None:
    """Hand over what a job says while it runs; raises msgspec.MsgspecError for what is no report."""
    fraction, message = _reports.decode(report.removeprefix(REPORT))
    if job.hold is not None:
        job.hold.report(fraction, message)


def answer(
    request: bytes, wait: Wait = asyncio.run, tell: Tell | None = None, asked: Asked = bool, within: Sequence[str] = ()
) -> bytes:
    """Run the call that was sent here, and say how it ended. It raises nothing, whatever the job does.

    `tell` sends the parent what the job says while it runs, `asked` says whether it is to stop, `within` are the paths of functions
    that make context managers to run it in.
    """
    try:
        with ExitStack() as stack:
            for path in within:
                stack.enter_context(find(path).function())
            return _encoder.encode(_answer(_requests.decode(request), wait, Away(tell=tell, asked=asked)))
    except BaseException as error:  # the job's own failure, or one of what it was sent with
        return _encoder.encode(Answer(failure=describe(error)))


def write_outcome(outcome: Outcome) -> bytes:
    """The answer of a call that ends so before it has begun."""
    return _encoder.encode(_describe_outcome(outcome, None, raised=True))


def path_of_call(call: Call) -> str:
    """The path of the function that is called; raises as path_of."""
    return path_of(call.function.function if isinstance(call.function, Definition) else call.function)


def path_of(function: Callable[..., Any]) -> str:
    """The path of a function; raises InvalidOption for one that another process cannot find by it."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str):
        raise InvalidOption(f"{function!r:.200} cannot run in another process: it is no function of a module")
    return _checked_path(function, f"{module}:{name}")


@lru_cache(maxsize=4096)
def _checked_path(function: Callable[..., Any], path: str) -> str:
    advice = "another process imports the function by that path: use a function at the top level of a module"
    if "<" in path:
        raise InvalidOption(f"{path} cannot run in another process, being a lambda or nested in a function; {advice}")
    try:
        found = find(path).function
    except InvalidOption as error:
        raise InvalidOption(f"{error}; {advice}") from None
    if found is not function:
        raise InvalidOption(f"{path} cannot run in another process: that path leads to {found!r:.200}; {advice}")
    return path


@cache
def find(path: str) -> Target:
    """What a path leads to; a job type stands for its function, also under other decorators."""
    module, _, name = path.partition(":")
    try:
        found: Any = reduce(getattr, name.split("."), importlib.import_module(module))
    except (ImportError, AttributeError) as error:
        raise InvalidOption(f"there is no {path}: {error}") from error
    layer = found
    while layer is not None:
        if isinstance(layer, Definition):
            return Target(layer.function, layer)
        layer = getattr(layer, "__wrapped__", None)
    return Target(found)


@cache
def _arguments_of(path: str, *, typed: bool = True) -> Arguments:
    target = find(path)
    return target.definition.arguments if target.definition is not None else Arguments(target.function, path, typed=typed)


def _path_of_type(job: Job) -> str | None:
    """The path of the function of the job's type, if it has one: its annotations type the arguments there too."""
    try:
        return path_of(job.definition.function) if job.definition is not None else None
    except InvalidOption:
        return None


def _answer(request: Request, wait: Wait, away: Away) -> Answer:
    job = _unpack(request, away)
    token = running_job.set(job)
    try:
        if request.attach is None:
            return _run(request, job, wait)
        with find(request.attach).function(request.carrier):
            return _run(request, job, wait)
    finally:
        running_job.reset(token)
        away.tell = None  # a thread that the job has left behind may speak on


def _run(request: Request, job: Job, wait: Wait) -> Answer:
    # as its annotation has it, where it is kept: the parent reads plain JSON, which stands for that
    kept = None if request.takes_job or job.definition is None else job.definition.results
    try:
        value = _invoke(request, job)
        if type(value) not in RUN and inspect.isawaitable(value):
            value, error = wait(_settle(value))
            if error is not None:
                raise error
        return _describe_value(refuse_unrun(value), kept)
    except Outcome as outcome:
        return _describe_outcome(outcome, kept, raised=True)


def _unpack(request: Request, away: Away) -> Job:
    """The job, with its arguments and its type; where that cannot be found here, they are plain JSON and secrets."""
    path = request.type if request.takes_job else request.function
    if request.timeout is not None:
        away.deadline = datetime.now(UTC) + timedelta(seconds=request.timeout)
    return msgspec.structs.replace(
        request.job,
        args=_arguments_in(request, path),
        definition=None if path is None else find(path).definition,
        hold=away,
    )


def _arguments_in(request: Request, path: str | None) -> Any:
    if request.values is not None:
        return taken_over(request.values)
    payload = request.job.payload
    return as_secrets(load_untyped(payload)) if path is None else _arguments_of(path).load(payload)


def _invoke(request: Request, job: Job) -> Any:
    function = find(request.function).function
    if request.takes_job:
        return function(job)
    args, kwargs = _arguments_of(request.function, typed=request.values is None).spread(job.args)
    return function(*args, **kwargs)


async def _settle(awaitable: Awaitable[Any]) -> Ran:
    try:
        return Ran(await awaitable)
    except BaseException as error:  # a task that raised SystemExit would stop the loop
        return Ran(error=error)


def _describe_value(value: Any, kept: Results | None) -> Answer:
    if isinstance(value, Outcome):
        return _describe_outcome(value, kept, raised=False)
    try:
        if kept is not None and value is not None:
            return Answer(result=kept.dump(value, VALUE_LIMIT))
        return Answer(result=dump_untyped(value, "the result", VALUE_LIMIT))
    except InvalidArguments as error:
        return Answer(unstorable=clean(str(error), MESSAGE_LIMIT))


def _describe_outcome(outcome: Outcome, kept: Results | None, *, raised: bool) -> Answer:
    kind = next((kind for kind in type(outcome).__mro__ if OUTCOMES.get(kind.__name__) is kind), None)
    if kind is None:
        raise TypeError(f"{outcome!r:.200} is no outcome of a job; use one of {', '.join(OUTCOMES)}")
    fields = {field.name: getattr(outcome, field.name) for field in dataclasses.fields(kind)}  # type: ignore[arg-type]  # each is a dataclass
    failure, error = fields.pop("failure", None), fields.pop("exception", None)
    if failure is None and error is not None:
        failure = describe(error)
    result = _describe_value(fields.pop("result"), kept) if "result" in fields else Answer()
    if result.unstorable is not None:
        return result
    reason = fields.get("reason")
    if reason is not None:
        fields["reason"] = clean(str(reason), MESSAGE_LIMIT)
    return Answer(result=result.result, outcome=Ending(kind.__name__, fields, failure, raised))


def _read_ending(ending: Ending, result: str | None) -> Outcome:
    kind = OUTCOMES.get(ending.name)
    if kind is None:
        raise msgspec.ValidationError(f"there is no outcome {ending.name!r:.200}")
    fields = dict(ending.fields)
    if result is not None:
        fields["result"] = load_untyped(result)
    if ending.failure is not None:
        fields["failure"] = ending.failure
    return kind(**fields)
