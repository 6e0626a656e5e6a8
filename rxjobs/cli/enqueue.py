"""`rxjobs enqueue`"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from rxjobs.cli.asking import ask
from rxjobs.cli.printing import print_json, print_lines, print_note
from rxjobs.cli.target import HERE, Target
from rxjobs.definition import Definition, NewJob
from rxjobs.errors import InvalidOption
from rxjobs.store.encoding import to_json

NAMELESS = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.VAR_POSITIONAL)
NO_JSON = (msgspec.MsgspecError, UnicodeError, RecursionError)


def enqueue(
    name: Annotated[str, Parameter(help="The name of the job type.")],
    /,
    *pairs: Annotated[str, Parameter(name="KEY=VALUE", help="An argument; its value is JSON, or else text.")],
    app: Annotated[str, Parameter(help="The app that knows the job type, as MODULE:APP.")],
    args: Annotated[str | None, Parameter(help="All arguments as one JSON object.")] = None,
    delay: Annotated[float | None, Parameter(help="Seconds until it may run.")] = None,
    priority: Annotated[int | None, Parameter(help="0 first to 9 last.")] = None,
    queue: Annotated[str | None, Parameter(help="Another queue than its type's.")] = None,
    target: Target = HERE,
) -> None:
    """Make a job.

    Example: rxjobs enqueue shop.jobs.send_welcome --app shop.jobs:app user_id=7 locale=de
    """
    values = arguments(pairs, args)
    loaded = target.load(app)
    new = make(loaded.definition(name), values, delay=delay, priority=priority, queue=queue)
    enqueued = ask(loaded, lambda: loaded.enqueue(new))
    if new.queue not in loaded.queues.declared:
        names = ", ".join(sorted(loaded.queues.declared))
        found = f"no job type of {app} names the queue {new.queue!r}, they name {names}"
        print_note(f"{found}: the job waits until a node takes from it")
    if target.json:
        print_json({**msgspec.structs.asdict(enqueued), "type": new.type, "queue": new.queue})
    else:
        there = " (it was there already)" if enqueued.duplicate else ""
        print_lines(f"job {enqueued.id} of {new.type} in queue {new.queue}: {enqueued.state}{there}")


def arguments(pairs: Sequence[str], args: str | None) -> dict[str, Any]:
    """A job's arguments, given as KEY=VALUE or all as one JSON object; raises InvalidOption."""
    if args is not None and pairs:
        raise InvalidOption("give the arguments as KEY=VALUE or all by --args, not both")
    return _pairs(pairs) if args is None else _object(args)


def make(definition: Definition[..., Any], values: Mapping[str, Any], **options: Any) -> NewJob:
    """A job of a type, of arguments by their names, also of those that its function takes by position only."""
    optioned = definition.options(**options)
    if not any(one.kind in NAMELESS for one in inspect.signature(definition.function).parameters.values()):
        return optioned.new(**values)
    # the function takes some by position only, and stored arguments all have names
    args, kwargs = definition.arguments.spread(definition.arguments.load(to_json(values).decode()))
    return optioned.new(*args, **kwargs)


def _pairs(pairs: Sequence[str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not key or not equals:
            raise InvalidOption(f"an argument is given as KEY=VALUE, such as user_id=7, not {pair!r}")
        if key in values:
            raise InvalidOption(f"the argument {key!r} is given twice")
        values[key] = _json_or_text(text)
    return values


def _json_or_text(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except NO_JSON:
        return text


def _object(text: str) -> dict[str, Any]:
    try:
        return msgspec.json.decode(text, type=dict[str, Any])
    except NO_JSON as error:
        raise InvalidOption(f"--args takes a JSON object, such as '{{\"user_id\": 7}}', not {text!r:.200}: {error}") from error
