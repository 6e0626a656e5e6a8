"""When an entry of cron is due: an expression and a time zone in, instants out."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, date, datetime, time, timedelta
from itertools import islice, takewhile
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

from rxjobs.errors import InvalidOption

NAMES = {
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
    "@monthly": "0 0 1 * *",
    "@weekly": "0 0 * * 0",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@hourly": "0 * * * *",
}
YEARS = 40
"""A day that does not come in so many years never does."""
WINDOWS = timedelta(hours=1), timedelta(days=2), timedelta(days=60), timedelta(days=800)
"""How far back slots are looked for at first: of an entry with many, the last ones are all that is asked for."""
ONE_VALUE = re.compile(r"\b(\w+)-\1/\d+", re.IGNORECASE)
"""A range of one value with a step, which cronsim takes for the same without an end."""
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)


class Schedule:
    """The slots of one entry.

    Five fields, or six with seconds first; names of days and months; `@hourly` and the like. Both day fields, where both are
    restricted, are joined by OR, as Vixie cron does. Raises InvalidOption for an expression that is none or never comes, and for an
    unknown time zone.

    An entry whose minute or hour begins with `*` runs as the hands pass: whenever the local reading fits, once more in an hour that
    is repeated, not in one that is skipped. Any other has fixed times, each of them once a local day: at the first of two, and
    where the reading is skipped, at the first moment after the gap.
    """

    def __init__(self, expression: str, tz: str = "UTC") -> None:
        self.expression = expression
        self.tz = tz
        self._zone = _zone(tz)
        self._fields = _fields(expression)
        self._runs_as_hands_pass = any(part.startswith("*") for part in self._fields.parts[1:3])
        today = datetime.now(UTC).date()
        if not any(self._is_a_day(today + timedelta(days=day)) for day in range(YEARS * 366)):
            raise InvalidOption(f"cron {expression!r} never comes: there is no such day")

    def __repr__(self) -> str:
        return f"Schedule({self.expression!r}, {self.tz!r})"

    def after(self, instant: datetime) -> Iterator[datetime]:
        """The slots later than an instant, in order, in UTC; endless."""
        instant = instant.astimezone(UTC)
        return self._as_hands_pass(instant) if self._runs_as_hands_pass else self._at_fixed_times(instant)

    def next(self, instant: datetime) -> datetime:
        """The first slot later than an instant, in UTC."""
        return next(self.after(instant))

    def between(self, after: datetime, until: datetime, most: int) -> list[datetime]:
        """The last `most` slots later than one instant and not later than another."""
        for window in WINDOWS:
            start = max(after, until - window)
            found = self._between(start, until)
            if len(found) >= most or start == after:
                return found[-most:]
        return self._between(after, until)[-most:]

    def _between(self, after: datetime, until: datetime) -> list[datetime]:
        return list(takewhile(lambda slot: slot <= until, self.after(after)))

    def _as_hands_pass(self, instant: datetime) -> Iterator[datetime]:
        fields = self._fields
        moment = instant.replace(microsecond=0) + SECOND
        while True:
            local = moment.astimezone(self._zone)
            if not self._is_a_day(local.date()):
                moment = self._leap(moment, datetime.combine(local.date() + timedelta(days=1), time()) - local.replace(tzinfo=None))
            elif local.hour not in fields.hours:
                moment = self._leap(moment, HOUR - timedelta(minutes=local.minute, seconds=local.second))
            elif local.minute not in fields.minutes:
                minute = min((one for one in fields.minutes if one > local.minute), default=60)
                moment = self._leap(moment, timedelta(minutes=minute - local.minute, seconds=-local.second))
            else:
                if local.second in fields.seconds:
                    yield moment
                moment += SECOND if len(fields.seconds) > 1 or local.second not in fields.seconds else MINUTE

    def _leap(self, moment: datetime, by: timedelta) -> datetime:
        """So much later; but only to the next minute where the clocks are changed in between."""
        later = moment + by
        if later.astimezone(self._zone).utcoffset() == moment.astimezone(self._zone).utcoffset():
            return later
        return moment.replace(second=0) + MINUTE

    def _at_fixed_times(self, instant: datetime) -> Iterator[datetime]:
        fields, last = self._fields, instant
        day = instant.astimezone(self._zone).date() - timedelta(days=1)
        readings = [time(h, m, s) for h in sorted(fields.hours) for m in sorted(fields.minutes) for s in sorted(fields.seconds)]
        while True:
            if self._is_a_day(day):
                for slot in sorted(self._when_it_reads(datetime.combine(day, reading)) for reading in readings):
                    if slot > last:
                        yield slot
                        last = slot
            day += timedelta(days=1)

    def _when_it_reads(self, reading: datetime) -> datetime:
        """The first instant at which clocks of the zone show a reading, or that after the gap in which they never do."""
        first = reading.replace(tzinfo=self._zone).astimezone(UTC)
        if first.astimezone(self._zone).replace(tzinfo=None) == reading:
            return first
        # by the offset of after the gap it is before it, and the other way round: the clocks are changed in between
        before, after = int(reading.replace(tzinfo=self._zone, fold=1).timestamp()), int(first.timestamp())
        offset = self._offset(before)
        while after - before > 1:
            middle = (before + after) // 2
            before, after = (middle, after) if self._offset(middle) == offset else (before, middle)
        return datetime.fromtimestamp(after, UTC)

    def _offset(self, timestamp: int) -> timedelta | None:
        return datetime.fromtimestamp(timestamp, self._zone).utcoffset()

    def _is_a_day(self, day: date) -> bool:
        fields = self._fields
        if day.month not in fields.months:
            return False
        is_day, is_weekday = self._is_day_of_month(day), self._is_weekday(day)
        return is_day and is_weekday if fields.day_and else is_day or is_weekday

    def _is_day_of_month(self, day: date) -> bool:
        days = self._fields.days
        if day.day in days:
            return True
        is_last = (day + timedelta(days=1)).month != day.month
        if CronSim.LAST in days and is_last:
            return True
        return CronSim.LAST_WEEKDAY in days and day == _last_workday(day)

    def _is_weekday(self, day: date) -> bool:
        names = {day.isoweekday() % 7, day.isoweekday()}
        weekdays = self._fields.weekdays
        if names & {one for one in weekdays if isinstance(one, int)}:
            return True
        is_last = (day + timedelta(days=7)).month != day.month
        places = {(day.day - 1) // 7 + 1, *([CronSim.LAST] if is_last else [])}
        return any(isinstance(one, tuple) and one[0] in names and one[1] in places for one in weekdays)


def upcoming(schedule: Schedule, instant: datetime, count: int) -> list[datetime]:
    """The next slots."""
    return list(islice(schedule.after(instant), count))


def _last_workday(day: date) -> date:
    last = (day.replace(day=28) + timedelta(days=4)).replace(day=1) - timedelta(days=1)
    return last - timedelta(days=max(0, last.isoweekday() - 5))


def _fields(expression: str) -> CronSim:
    text = NAMES.get(expression.strip().lower(), expression) if isinstance(expression, str) else ""
    text = ONE_VALUE.sub(r"\1", text)
    try:
        return CronSim(text, datetime(2000, 1, 1, tzinfo=UTC))
    except CronSimError as error:
        names = ", ".join(NAMES)
        raise InvalidOption(
            f"cron takes five fields (minute hour day month weekday), six with seconds first, or one of {names}, "
            f"not {expression!r:.100}: {error}"
        ) from None


def _zone(tz: str) -> ZoneInfo:
    try:
        return ZoneInfo(tz)
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError):
        raise InvalidOption(f"there is no time zone {tz!r:.100}; it is a name such as 'Europe/Berlin' or 'UTC'") from None
