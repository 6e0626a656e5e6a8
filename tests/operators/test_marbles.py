"""What every operator does, on the virtual time of reactivex's TestScheduler: jobs in on one line, what comes out on another."""

from __future__ import annotations

import pytest

from rxjobs.testing import marbles
from tests.operators.table import OPERATORS

LINES = {f"{name}: {line.shows}": line for name, row in OPERATORS.items() for line in row.lines}


@pytest.mark.parametrize("shown", LINES)
def test_the_operator_shows(shown):
    line = LINES[shown]
    marbles(line.make(), line.jobs, line.expect, values=line.values)
