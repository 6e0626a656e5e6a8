"""`python -m tests.chaos.forked`: two workers that are forks of one process which has imported everything, as a server preloads."""

from __future__ import annotations

import os
import signal

from tests.chaos import worker

if __name__ == "__main__":
    child = os.fork()
    try:
        worker.run()
    finally:
        if child:
            os.kill(child, signal.SIGTERM)
            os.waitpid(child, 0)
