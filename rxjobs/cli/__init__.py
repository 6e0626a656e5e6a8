"""The command `rxjobs`. A command's module is imported when it is called, or when its help is asked for."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App as Commands
from cyclopts import CycloptsError, MissingArgumentError, Parameter

from rxjobs.cli.escaping import on_one_line
from rxjobs.errors import RxJobsError

MISTAKE, INTERRUPTED = 2, 130
HELP = {"--help", "-h"}

commands = Commands(
    name="rxjobs",
    help="Run and look after background jobs: reactive streams on PostgreSQL.",
    help_format="plaintext",
    version=lambda: version("rxjobs"),
    # what a user does not say is left to the settings, so no option has a --no- form
    default_parameter=Parameter(negative=()),
    exit_on_error=False,
    print_error=False,
    result_action="return_value",
)
# not named as the modules of their commands: to import those would put them here instead
_jobs = Commands(name="jobs", help="Look at jobs, and cancel, retry or delete them.")
_cron = Commands(name="cron", help="Look at jobs that come again, and add, pause, resume, run or remove them.")
_queues = Commands(name="queues", help="Look at queues, and pause, resume, scale or limit them.")
_breakers = Commands(name="breakers", help="Look at the breakers of job types, and open or close them by hand.")
_history = Commands(name="history", help="Have finished jobs in a table for each day, week or month, and look at those.")

commands.command("rxjobs.cli.demo:demo", name="demo")
commands.command("rxjobs.cli.bench:bench", name="bench", usage="Usage: rxjobs bench [SCENARIOS...] [OPTIONS]")
commands.command("rxjobs.cli.run:run", name="run", usage="Usage: rxjobs run MODULE:APP [OPTIONS]")
commands.command("rxjobs.cli.migrate:migrate", name="migrate")
commands.command("rxjobs.cli.doctor:doctor", name="doctor")
commands.command("rxjobs.cli.enqueue:enqueue", name="enqueue", usage="Usage: rxjobs enqueue NAME --app MODULE:APP [KEY=VALUE...]")
commands.command(_jobs)
_jobs.command("rxjobs.cli.jobs:list_jobs", name="list")
_jobs.command("rxjobs.cli.jobs:show", name="show", usage="Usage: rxjobs jobs show ID [OPTIONS]")
_jobs.command("rxjobs.cli.jobs:cancel", name="cancel", usage="Usage: rxjobs jobs cancel [IDS...] [OPTIONS]")
_jobs.command("rxjobs.cli.jobs:retry", name="retry", usage="Usage: rxjobs jobs retry [IDS...] [OPTIONS]")
_jobs.command("rxjobs.cli.jobs:delete", name="delete", usage="Usage: rxjobs jobs delete [IDS...] [OPTIONS]")
commands.command("rxjobs.cli.nodes:nodes", name="nodes")
commands.command("rxjobs.cli.top:top", name="top")
commands.command("rxjobs.cli.web:web", name="web")
commands.command(_queues)
_queues.command("rxjobs.cli.queues:list_queues", name="list")
_queues.command("rxjobs.cli.queues:pause", name="pause", usage="Usage: rxjobs queues pause QUEUE [OPTIONS]")
_queues.command("rxjobs.cli.queues:resume", name="resume", usage="Usage: rxjobs queues resume QUEUE [OPTIONS]")
_queues.command("rxjobs.cli.queues:scale", name="scale", usage="Usage: rxjobs queues scale QUEUE MAX_DEMAND [OPTIONS]")
_queues.command("rxjobs.cli.queues:limit", name="limit", usage="Usage: rxjobs queues limit QUEUE CONCURRENCY [OPTIONS]")
_queues.command("rxjobs.cli.queues:rate", name="rate", usage="Usage: rxjobs queues rate QUEUE N [OPTIONS]")
_queues.command("rxjobs.cli.queues:share", name="share", usage="Usage: rxjobs queues share QUEUE --by args.NAME [OPTIONS]")

commands.command(_cron)
_cron.command("rxjobs.cli.cron:list_entries", name="list")
_cron.command(
    "rxjobs.cli.cron:add", name="add", usage="Usage: rxjobs cron add NAME EXPRESSION JOB_TYPE --app MODULE:APP [KEY=VALUE...]"
)
_cron.command("rxjobs.cli.cron:pause", name="pause", usage="Usage: rxjobs cron pause NAME [OPTIONS]")
_cron.command("rxjobs.cli.cron:resume", name="resume", usage="Usage: rxjobs cron resume NAME [OPTIONS]")
_cron.command("rxjobs.cli.cron:run", name="run", usage="Usage: rxjobs cron run NAME [OPTIONS]")
_cron.command("rxjobs.cli.cron:remove", name="remove", usage="Usage: rxjobs cron remove NAME [OPTIONS]")

commands.command(_breakers)
_breakers.command("rxjobs.cli.breakers:list_breakers", name="list")
_breakers.command("rxjobs.cli.breakers:open_breaker", name="open", usage="Usage: rxjobs breakers open JOB_TYPE [OPTIONS]")
_breakers.command("rxjobs.cli.breakers:close_breaker", name="close", usage="Usage: rxjobs breakers close JOB_TYPE [OPTIONS]")

commands.command(_history)
_history.command("rxjobs.cli.history:list_parts", name="list")
_history.command("rxjobs.cli.history:partition", name="partition", usage="Usage: rxjobs history partition --by month [OPTIONS]")


commands.command("rxjobs.cli.completion:install_completion", name="--install-completion")


def main() -> None:
    """Do what the command line says, and exit: 0 done, 1 something broke, 2 a mistake, told in one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")
    sys.exit(obey(sys.argv[1:]))


def obey(arguments: Sequence[str]) -> int:
    """Do what a command line says; gives the exit code."""
    try:
        if len(arguments) < 2 or not HELP.isdisjoint(arguments):
            import_all()
        code = commands(arguments)
        sys.stdout.flush()
        return code if isinstance(code, int) else 0
    except CycloptsError as error:
        return _complain(f"{_said(error)} See: {_help_for(error)}")
    except RxJobsError as error:
        return _complain(str(error))
    except KeyboardInterrupt:
        return INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has seen enough; what is still buffered must not fail once more while Python exits
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0


def import_all() -> None:
    """Import every command: a list of commands says what each is for, and that stands at its function."""
    for group in (commands, _jobs, _queues, _cron, _breakers, _history):
        for name in group:
            group[name]


def _complain(text: str) -> int:
    print(f"rxjobs: {on_one_line(text)}", file=sys.stderr)
    return MISTAKE


def _said(error: CycloptsError) -> str:
    """What is wrong, in our words where Cyclopts' do not say what was left out."""
    if not isinstance(error, MissingArgumentError) or (left_out := error.argument) is None:
        return str(error)
    is_missing = f"{left_out.name} is missing" if left_out.required else f"{left_out.name} needs a value"
    return f"{is_missing}: {left_out.parameter.help}" if left_out.parameter.help else f"{is_missing}."


def _help_for(error: CycloptsError) -> str:
    return " ".join(["rxjobs", *(error.command_chain or ()), "--help"])
