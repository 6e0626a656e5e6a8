"""A module that takes its time."""

import time

time.sleep(1.5)


def answer() -> int:
    return 42
