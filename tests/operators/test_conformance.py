"""Every operator keeps the same laws."""

from __future__ import annotations

import pytest

from rxjobs.testing import conformance
from tests.operators.table import OPERATORS, exported

LAWS = {f"{name} {way}".strip(): law for name, row in OPERATORS.items() for way, law in row.laws.items()}


def test_every_operator_that_is_exported_is_held_to_the_laws_and_shown_by_marbles():
    assert OPERATORS.keys() == exported()
    assert [name for name, row in OPERATORS.items() if not row.laws or not row.lines] == []


@pytest.mark.parametrize("stage", LAWS)
async def test_the_stage_keeps_the_laws(stage):
    make, failing, demand = LAWS[stage]
    await conformance.operator(make, failing=failing, **demand)
