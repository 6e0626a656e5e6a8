"""`rxjobs cron`"""

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from rxjobs.cli.asking import ask
from rxjobs.cli.enqueue import arguments, make
from rxjobs.cli.printing import instant, print_json, print_lines, print_table
from rxjobs.cli.target import HERE, Target
from rxjobs.cron import CronEntry, Missed

Entry = Annotated[str, Parameter(name="NAME", help="An entry's name, as `rxjobs cron list` shows it.")]


def list_entries(*, target: Target = HERE) -> None:
    """List the entries: their times, what becomes of missed slots, the job of each, and when it comes next.

    Example: rxjobs cron list --json
    """
    app = target.app()
    found = ask(app, app.cron.list)
    if target.json:
        print_json(found)
    elif not found:
        print("there is no entry of cron: app.cron(...) in code, or rxjobs cron add, makes one")
    else:
        print_table(["name", "expression", "zone", "missed", "job type", "queue", "by", "next"], map(_row, found))


def add(
    entry: Entry,
    expression: Annotated[str, Parameter(name="EXPRESSION", help="Five fields, six with seconds first, or @hourly and the like.")],
    job_type: Annotated[str, Parameter(name="JOB_TYPE", help="The name of the job type.")],
    /,
    *pairs: Annotated[str, Parameter(name="KEY=VALUE", help="An argument; its value is JSON, or else text.")],
    app: Annotated[str, Parameter(help="The app that knows the job type, as MODULE:APP.")],
    tz: Annotated[str, Parameter(help="The time zone, such as Europe/Berlin.")] = "UTC",
    missed: Annotated[Missed, Parameter(help="What becomes of slots that nobody was there for: once, all or skip.")] = "once",
    args: Annotated[str | None, Parameter(help="All arguments as one JSON object.")] = None,
    target: Target = HERE,
) -> None:
    """Make an entry, or change the one of that name. One that code declares is as it is there when a node starts again.

    Example: rxjobs cron add digest "0 8 * * 1-5" shop.jobs.send_digest --app shop.jobs:app --tz Europe/Berlin
    """
    loaded = target.load(app)
    new = make(loaded.definition(job_type), arguments(pairs, args))
    is_new = ask(loaded, lambda: loaded.cron.add(entry, expression, new, tz=tz, missed=missed))
    _tell(target, entry, f"entry {entry} {'made' if is_new else 'changed'}", new=is_new)


def pause(entry: Entry, /, *, target: Target = HERE) -> None:
    """Let the slots of an entry go by, until it is resumed.

    Example: rxjobs cron pause digest
    """
    app = target.app()
    is_new = ask(app, lambda: app.cron.pause(entry))
    text = f"entry {entry} paused" if is_new else f"entry {entry}: nothing to do, it was paused already"
    _tell(target, entry, text, changed=is_new)


def resume(entry: Entry, /, *, target: Target = HERE) -> None:
    """Make jobs of the slots of an entry again, from now on.

    Example: rxjobs cron resume digest
    """
    app = target.app()
    is_new = ask(app, lambda: app.cron.resume(entry))
    text = f"entry {entry} resumed" if is_new else f"entry {entry}: nothing to do, it was not paused"
    _tell(target, entry, text, changed=is_new)


def remove(entry: Entry, /, *, target: Target = HERE) -> None:
    """Remove an entry. One that code declares comes back as long as a node declares it: pause that, or take it out of the code.

    Example: rxjobs cron remove digest
    """
    app = target.app()
    is_gone = ask(app, lambda: app.cron.remove(entry))
    again = "; a node that runs declares it in code, and enters it again: pause it to keep it off"
    _tell(target, entry, f"entry {entry} removed{'' if is_gone else again}", gone=is_gone)


def run(entry: Entry, /, *, target: Target = HERE) -> None:
    """Make the job of an entry now, whatever its times.

    Example: rxjobs cron run digest
    """
    app = target.app()
    enqueued = ask(app, lambda: app.cron.run(entry))
    _tell(target, entry, f"job {enqueued.id}: {enqueued.state}", id=enqueued.id, duplicate=enqueued.duplicate)


def _tell(target: Target, entry: str, text: str, **facts: Any) -> None:
    if target.json:
        print_json({"name": entry, **facts})
    else:
        print_lines(text)


def _row(entry: CronEntry) -> list[Any]:
    off = "off: no node declares it" if entry.paused_at is None else f"paused since {instant(entry.paused_at)}"
    coming = off if entry.next_slot is None else instant(entry.next_slot)
    by = "code" if entry.is_declared else "hand"
    return [entry.name, entry.expression, entry.tz, entry.missed, entry.type, entry.queue, by, coming]
