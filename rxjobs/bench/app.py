"""The app that is measured."""

from __future__ import annotations

from dataclasses import asdict

import rxjobs as rj
from rxjobs.bench.said import Order
from rxjobs.settings import Settings
from rxjobs.telemetry.providers import Telemetry

LONG = 10.0**7
"""Seconds for which finished rows are kept: the bench counts them."""


def app_of(order: Order, telemetry: Telemetry | None = None) -> rj.App:
    """An app on the bench's schema, with every setting given: none of the user's own is to change what is measured."""
    settings = asdict(Settings(dsn=order.dsn, schema=order.schema, keep=LONG, shutdown_grace=0.0))
    return rj.App(telemetry=telemetry, **settings)
