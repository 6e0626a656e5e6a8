"""The weather: a few jobs that go wrong, each in its own way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from reactivex import Observable
from reactivex import operators as ops

import rxjobs as rj

QUEUE = "weather"
FAILURES = 3
"""How many failures in a row open the breaker of the forecast."""
OUTAGE = 1.3
"""Seconds that the forecast service is down, from the first time it is asked: longer than its breaker stays open."""
CITIES = ("Aachen", "Bergen", "Cádiz", "Delft", "Essen", "Faro", "Genoa", "Hull", "Izmir", "Jena")


class Service:
    """A service that is down when it is asked first."""

    def __init__(self) -> None:
        self._asked = 0
        self._back_at = 0.0

    def ask(self, city: str) -> str:
        """The forecast; raises ConnectionError while the service is down."""
        self._asked += 1
        if self._asked == 1:
            self._back_at = time.monotonic() + OUTAGE
        # counted too, so that the breaker opens however slow the machine is
        if self._asked <= FAILURES or time.monotonic() < self._back_at:
            raise ConnectionError(f"the forecast service does not answer for {city}")
        return f"{city}: fine"


def declare_weather(app: rj.App, acked: Callable[[Any], None]) -> tuple[list[rj.NewJob], Observable[Any]]:
    """The jobs, and the pipeline that runs them; `acked` is told of each attempt that is written down."""
    service = Service()

    @app.job(name="flaky_reading", queue=QUEUE, backoff=lambda attempt, error: 0.3 * attempt, breaker=None)
    async def flaky_reading(station: int) -> float:
        if rj.current_job().attempt <= 2:
            raise ConnectionResetError(f"station {station} hung up")
        return 20.0 + station

    @app.job(name="failing_reading", queue=QUEUE, max_attempts=2, backoff=lambda attempt, error: 0.5, breaker=None)
    async def failing_reading(station: int) -> float:
        return float(f"{station}° in the shade")

    @app.job(name="slow_reading", queue=QUEUE, max_attempts=1, timeout=0.3, breaker=None)
    async def slow_reading(station: int) -> None:
        await asyncio.sleep(60)

    breaker = rj.Breaker(fail_max=FAILURES, reset_timeout=1)

    @app.job(name="forecast", queue=QUEUE, backoff=lambda attempt, error: 0.3, breaker=breaker)
    async def forecast(city: str) -> str:
        return service.ask(city)

    news = [
        *(flaky_reading.new(station) for station in range(1, 6)),
        *(failing_reading.new(station) for station in range(6, 9)),
        *(slow_reading.new(station) for station in range(9, 12)),
        *(forecast.new(city) for city in CITIES),
    ]
    pipeline = app.source(QUEUE, max_demand=20).pipe(
        rj.execute(concurrency=10),
        rj.ack(),
        ops.do_action(acked),
    )
    return news, app.pipeline(pipeline, name="weather")
