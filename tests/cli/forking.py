"""Runs `rxjobs` in a process of its own for each line on stdin, forked from this one, which has imported everything already.

A line is JSON: arguments, folder, environment, and the files that take stdout and stderr. The answer is the exit code.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from typing import NoReturn

from rxjobs.cli import import_all, main


def be(arguments: list[str], folder: str, environment: dict[str, str], out: str, err: str) -> NoReturn:
    for fd, path in ((0, os.devnull), (1, out), (2, err)):
        os.dup2(os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC), fd)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[1:] = arguments
    code = 1
    try:
        main()
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0 if leaving.code is None else 1
    except BaseException:
        traceback.print_exc()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    import_all()
    for line in sys.stdin:
        pid = os.fork()
        if not pid:
            be(**json.loads(line))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)
