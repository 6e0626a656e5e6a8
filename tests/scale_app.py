"""The app that tests.scale has run: where its code runs is named by the environment."""

import atexit
import contextlib
import os

import rxjobs as rj
from tests import scale

stack = contextlib.ExitStack()
atexit.register(stack.close)

place = scale.place_of(os.environ[scale.PLACE], stack)
app = rj.App(poll_seconds=0.2)
app.job(name="nothing")(scale.nothing)
app.job(name="wait")(scale.wait)
app.job(name="compute", executor=place)(scale.compute)
