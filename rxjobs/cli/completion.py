"""`rxjobs --install-completion`"""

from __future__ import annotations

from typing import Annotated, Literal

from cyclopts import Parameter
from cyclopts.completion.detect import ShellDetectionError

from rxjobs.cli import commands
from rxjobs.cli.printing import print_lines
from rxjobs.errors import InvalidOption

Shell = Literal["bash", "zsh", "fish", "powershell"]


def install_completion(
    *, shell: Annotated[Shell | None, Parameter(help="Which shell. Otherwise the one that this is called from.")] = None
) -> None:
    """Have your shell complete commands, options and their values: a script for it is written, and its startup file loads that.

    Example: rxjobs --install-completion --shell bash
    """
    try:
        path = commands.install_completion(shell=shell)
    except ShellDetectionError:
        raise InvalidOption("which shell this is cannot be found out: say it, as in --install-completion --shell bash") from None
    except OSError as error:
        raise InvalidOption(f"the script cannot be written: {error}; HOME says where your shell's files are") from error
    print_lines(f"written to {path}; a new shell completes rxjobs")
