"""Any Observable of events becomes jobs: here the readings of a thermometer, of which the hot ones raise an alarm.

python examples/05_events_to_jobs.py
"""

import asyncio

import reactivex as rx
from reactivex import operators as ops

import rxjobs as rj

app = rj.App()

READINGS = [18.5, 19.0, 31.5, 18.0, 35.2, 33.3, 20.1]


@app.job(name="alarm.raise", queue="alarms", max_attempts=3)
async def raise_alarm(celsius: float) -> None:
    print(f"alarm: {celsius} °C")


alarms = rx.from_iterable(READINGS).pipe(
    ops.filter(lambda celsius: celsius > 30),
    ops.map(lambda celsius: raise_alarm.new(celsius=celsius)),
    rj.enqueue(app),
    ops.do_action(lambda row: print("enqueued as job", row.id)),
    ops.count(),
)


async def main() -> None:
    async with app.running():
        raised = app.events.pipe(ops.filter(lambda event: event.name == "job.stop"), ops.take(3), ops.to_future())
        print(await alarms, "alarms enqueued")
        await raised


if __name__ == "__main__":
    asyncio.run(main())
