"""When entries of cron are due: held against a slow reference that walks every minute of UTC."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from itertools import pairwise, takewhile
from random import Random
from zoneinfo import ZoneInfo

import pytest

import rxjobs as rj
from rxjobs.cron_times import NAMES, Schedule, upcoming

ZONES = [
    "UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "America/New_York", "America/Santiago", "America/Sao_Paulo",
    "America/Havana", "America/St_Johns", "Australia/Lord_Howe", "Asia/Kathmandu", "Asia/Tehran", "Asia/Beirut", "Asia/Gaza",
    "Pacific/Chatham", "Pacific/Apia", "Africa/Casablanca", "Africa/Cairo", "Atlantic/Azores", "Antarctica/Troll",
]  # fmt: skip
ROUNDS = int(os.environ.get("CRON_ROUNDS", "60"))
MINUTE = timedelta(minutes=1)


def at(text):
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def shown(slots):
    return [f"{slot:%m-%d %H:%M}" + (f":{slot:%S}" if slot.second else "") for slot in slots]


@pytest.mark.parametrize(
    ("expression", "tz", "after", "expected"),
    [
        # 2026-03-29 the clocks of Berlin go from 02:00 to 03:00, at 01:00 UTC; 2026-10-25 from 03:00 back to 02:00, at 01:00 UTC
        ("30 2 * * *", "Europe/Berlin", "2026-03-28T00:00", ["03-28 01:30", "03-29 01:00", "03-30 00:30"]),
        ("0,30 2 * * *", "Europe/Berlin", "2026-03-29T00:00", ["03-29 01:00", "03-30 00:00", "03-30 00:30"]),
        ("0 2,3 * * *", "Europe/Berlin", "2026-03-29T00:00", ["03-29 01:00", "03-30 00:00"]),
        ("30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["10-25 00:30", "10-26 01:30"]),
        ("*/30 2 * * *", "Europe/Berlin", "2026-10-24T12:00", ["10-25 00:00", "10-25 00:30", "10-25 01:00", "10-25 01:30"]),
        ("*/30 2 * * *", "Europe/Berlin", "2026-03-28T12:00", ["03-30 00:00", "03-30 00:30"]),
        ("30 * * * *", "Europe/Berlin", "2026-03-29T00:00", ["03-29 00:30", "03-29 01:30"]),
        # 2026-04-05 the clocks of Lord Howe go back by half an hour, at 15:00 UTC of the day before
        ("45 1 * * *", "Australia/Lord_Howe", "2026-04-04T12:00", ["04-04 14:45", "04-05 15:15"]),
        ("0 0 13 * 5", "UTC", "2026-02-10T00:00", ["02-13 00:00", "02-20 00:00", "02-27 00:00", "03-06 00:00", "03-13 00:00"]),
        ("0 0 29 2 *", "UTC", "2026-01-01T00:00", ["02-29 00:00"]),
        ("0 0 L * *", "UTC", "2026-01-15T00:00", ["01-31 00:00", "02-28 00:00"]),
        ("0 0 * * mon#2", "UTC", "2026-01-01T00:00", ["01-12 00:00", "02-09 00:00"]),
        ("0 0 * * 7", "UTC", "2026-01-01T00:00", ["01-04 00:00", "01-11 00:00"]),
        ("5-5/2 0 * * *", "UTC", "2026-01-01T00:00", ["01-01 00:05", "01-02 00:05"]),
        ("15 30 8 * * *", "UTC", "2026-01-01T00:00", ["01-01 08:30:15", "01-02 08:30:15"]),
        ("*/20 * * * * *", "UTC", "2026-01-01T00:00", ["01-01 00:00:20", "01-01 00:00:40", "01-01 00:01"]),
        ("@Hourly", "UTC", "2026-01-01T00:00", ["01-01 01:00"]),
    ],
)
def test_slots_come_when_they_are_expected(expression, tz, after, expected):
    assert shown(upcoming(Schedule(expression, tz), at(after), len(expected))) == expected


def test_every_name_stands_for_an_expression():
    after = at("2026-01-01T00:00")
    for name, expression in NAMES.items():
        assert upcoming(Schedule(name), after, 3) == upcoming(Schedule(expression), after, 3)


def test_around_changes_of_the_clocks_it_agrees_with_the_reference():
    """CRON_ROUNDS=2000 takes some minutes, and covers ten years."""
    seed = int(os.environ.get("CRON_SEED", "7"))
    for round_ in range(seed, seed + ROUNDS):
        random = Random(round_)
        tz, expression = random.choice(ZONES), an_expression(random)
        after = a_change(random, tz) - timedelta(hours=30)
        until = after + timedelta(hours=60)
        found = Schedule(expression, tz).between(after, until, 10**9)
        assert found == reference(expression, tz, after, until), f"CRON_SEED={round_}: {expression} {tz} {after}"


def a_change(random, tz):
    """About the first change of the clocks after some hour of ten years."""
    zone, moment = ZoneInfo(tz), at("2025-01-01T00:00") + timedelta(hours=random.randrange(10 * 8766))
    before = moment.astimezone(zone).utcoffset()
    for _ in range(8800):
        moment += timedelta(hours=1)
        if moment.astimezone(zone).utcoffset() != before:
            break
    return moment


def an_expression(random):
    hours = field(random, 0, 3, 0.2) if random.random() < 0.7 else field(random, 0, 23, 0.2)
    days, months, weekdays = field(random, 1, 28, 0.7), field(random, 1, 12, 0.8), field(random, 0, 7, 0.7)
    return " ".join([field(random, 0, 59, 0.15), hours, days, months, weekdays])


def field(random, least, most, stars):
    kind = random.random()
    low = random.randint(least, most)
    if kind < stars:
        return "*"
    if kind < stars + 0.1:
        return f"*/{random.randint(2, max(2, (most - least) // 2))}"
    if kind < stars + 0.2:
        return f"{low}-{random.randint(low, most)}" + (f"/{random.randint(2, 5)}" if random.random() < 0.4 else "")
    if kind < stars + 0.35:
        return ",".join(str(random.randint(least, most)) for _ in range(random.randint(2, 3)))
    return str(low)


def reference(expression, tz, after, until):
    """Every minute of UTC, and what the clocks show there."""
    zone = ZoneInfo(tz)
    minute, hour, day, month, weekday = expression.split()
    minutes, hours, days, months = values(minute, 0, 59), values(hour, 0, 23), values(day, 1, 31), values(month, 1, 12)
    weekdays = {one % 7 for one in values(weekday, 0, 7)}
    joined_by_and = day.startswith("*") or weekday.startswith("*")

    def fits(reading):
        is_day, is_weekday = reading.day in days, reading.isoweekday() % 7 in weekdays
        is_one = is_day and is_weekday if joined_by_and else is_day or is_weekday
        return reading.minute in minutes and reading.hour in hours and reading.month in months and is_one

    if minute.startswith("*") or hour.startswith("*"):
        every = (after + MINUTE * n for n in range(1, int((until - after) / MINUTE) + 1))
        return [moment for moment in every if fits(moment.astimezone(zone).replace(tzinfo=None))]
    found, done, moment = [], set(), after - timedelta(days=3)
    latest = moment.astimezone(zone).replace(tzinfo=None)
    while moment <= until:
        reading = moment.astimezone(zone).replace(tzinfo=None)
        passed = {reading}
        while latest + MINUTE < reading:  # what no clock has shown
            latest += MINUTE
            passed.add(latest)
        latest = max(latest, reading)
        new = {one for one in passed if fits(one)} - done
        done |= new
        if new and moment > after:
            found.append(moment)
        moment += MINUTE
    return found


YEARS = int(os.environ.get("CRON_YEARS", "1"))
EXPRESSIONS = int(os.environ.get("CRON_EXPRESSIONS", "4"))
MOST = 5_000


@pytest.mark.parametrize("tz", ZONES)
def test_over_years_it_agrees_with_every_reading_of_the_clocks(tz):
    """CRON_YEARS=10 CRON_EXPRESSIONS=200 takes some minutes. What has very many slots is held against it around all changes."""
    seed = int(os.environ.get("CRON_SEED", "7"))
    years = list(stretches_of(tz, at("2025-01-01T00:00"), at(f"{2025 + YEARS}-01-01T00:00")))
    hours = timedelta(hours=6)
    changes = [[(end - hours, end, ahead), (end, end + hours, then)] for (_, end, ahead), (_, _, then) in pairwise(years)]
    for round_ in range(seed, seed + EXPRESSIONS):
        expression = an_expression(Random(round_))
        minute, hour, *_ = expression.split()
        is_rare = len(values(minute, 0, 59)) * len(values(hour, 0, 23)) * 366 * YEARS < MOST
        for stretches in [years] if is_rare else changes:
            after, until = stretches[0][0], stretches[-1][1] - MINUTE
            expected = [slot for slot in sorted(read_off(expression, stretches)) if after < slot <= until]
            found = list(takewhile(lambda slot: slot <= until, Schedule(expression, tz).after(after)))  # noqa: B023 - used at once
            assert found == expected, f"CRON_SEED={round_}: {expression} {tz} {after}"


def stretches_of(tz, start, end):
    """The times in which the clocks of a zone are not changed: from, to, and what they are ahead of UTC."""
    zone, hour, begun = ZoneInfo(tz), timedelta(hours=1), start
    ahead, moment = start.astimezone(zone).utcoffset(), start
    while moment < end:
        if (moment + hour).astimezone(zone).utcoffset() != ahead:
            while moment.astimezone(zone).utcoffset() == ahead:
                moment += MINUTE
            yield begun, moment, ahead
            begun, ahead = moment, moment.astimezone(zone).utcoffset()
        else:
            moment += hour
    yield begun, end, ahead


def read_off(expression, stretches):
    """The slots of an expression, from every reading that fits it on every day."""
    minute, hour, day, month, weekday = expression.split()
    days, months, weekdays = values(day, 1, 31), values(month, 1, 12), {one % 7 for one in values(weekday, 0, 7)}
    readings = [timedelta(hours=h, minutes=m) for h in values(hour, 0, 23) for m in values(minute, 0, 59)]
    joined_by_and = day.startswith("*") or weekday.startswith("*")
    as_hands_pass = minute.startswith("*") or hour.startswith("*")

    def fits(date):
        is_day, is_weekday = date.day in days, date.isoweekday() % 7 in weekdays
        return date.month in months and (is_day and is_weekday if joined_by_and else is_day or is_weekday)

    found, shown_up_to = set(), (stretches[0][0] + stretches[0][2]).replace(tzinfo=None)
    for begin, end, ahead in stretches:
        first, last = (begin + ahead).replace(tzinfo=None), (end + ahead).replace(tzinfo=None)
        date = min(first, shown_up_to).replace(hour=0, minute=0)
        while date < last:
            for reading in map(date.__add__, readings if fits(date) else ()):
                if (first if as_hands_pass else max(first, shown_up_to)) <= reading < last:
                    found.add((reading - ahead).replace(tzinfo=UTC))
                elif not as_hands_pass and shown_up_to <= reading < first:  # what no clock has shown
                    found.add(begin)
            date += timedelta(days=1)
        shown_up_to = max(shown_up_to, last)
    return found


def values(text, least, most):
    found = set()
    for term in text.split(","):
        span, _, step = term.partition("/")
        low, _, high = span.partition("-")
        if span == "*":
            low, high = least, most
        elif not high:
            high = most if step else low
        found |= set(range(int(low), int(high) + 1, int(step or 1)))
    return found


@pytest.mark.parametrize("most", [1, 5, 100])
def test_the_last_of_many_slots_are_found_soon(most):
    """Of an entry that is due each second, and was looked at last years ago."""
    until = at("2026-06-01T00:00")
    found = Schedule("* * * * * *").between(at("2006-06-01T00:00"), until, most)
    assert found == [until - timedelta(seconds=n) for n in reversed(range(most))]


NONE = ["", "* * * *", "60 * * * *", "* * 32 * *", "a * * * *", "1,,2 * * * *", "0 0 31 2 *", "@never", None, 7]


@pytest.mark.parametrize("expression", NONE)
def test_what_is_no_expression_or_never_comes_is_refused(expression):
    with pytest.raises(rj.InvalidOption, match="cron"):
        Schedule(expression)
