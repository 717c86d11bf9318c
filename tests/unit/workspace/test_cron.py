"""When cron lines fire, with cronsim as a second opinion."""

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise, takewhile
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim, CronSimError
from hypothesis import assume, example, given
from hypothesis import strategies as st

from nova_workers.base.errors import InvalidInput
from nova_workers.domain.triggers.rules.cron import cron_firings, names_many_seconds, parse_cron
from tests.requirements import proves

BERLIN = ZoneInfo("Europe/Berlin")
PLAIN_ZONES = (
    "UTC",
    "America/Los_Angeles",
    "America/New_York",
    "Asia/Kathmandu",
    "Australia/Sydney",
    "Europe/Berlin",
    "Europe/Dublin",
)
"""Their clocks change by whole hours, at whole hours, and not at midnight."""
ZONES = (
    *PLAIN_ZONES,
    "Africa/Cairo",
    "Africa/Casablanca",
    "America/Havana",
    "America/Santiago",
    "America/St_Johns",
    "Antarctica/Troll",
    "Asia/Tehran",
    "Australia/Lord_Howe",
    "Pacific/Apia",
    "Pacific/Chatham",
)


def firings(line: str, zone: str, after: str, count: int) -> list[str]:
    """Return firings as the zone's clocks show them."""
    where = ZoneInfo(zone)
    start = datetime.fromisoformat(after)
    start = start.replace(tzinfo=where) if start.tzinfo is None else start
    found = islice(cron_firings(parse_cron(line), where, after=start), count)
    return [each.astimezone(where).strftime("%m-%d %H:%M:%S%z") for each in found]


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("30 2 * * *", "2026-03-28T12:00", ["03-29 03:00:00+0200", "03-30 02:30:00+0200"]),
        ("0,30 2 * * *", "2026-03-28T12:00", ["03-29 03:00:00+0200", "03-30 02:00:00+0200"]),
        ("0 3 * * *", "2026-03-28T12:00", ["03-29 03:00:00+0200", "03-30 03:00:00+0200"]),
        ("30 2,3 * * *", "2026-03-28T12:00", ["03-29 03:00:00+0200", "03-29 03:30:00+0200"]),
        ("*/15 2 * * *", "2026-03-28T12:00", ["03-29 03:00:00+0200", "03-30 02:00:00+0200"]),
        ("*/30 * * * *", "2026-03-29T01:00", ["03-29 01:30:00+0100", "03-29 03:00:00+0200"]),
        ("30 * * * *", "2026-03-29T01:00", ["03-29 01:30:00+0100", "03-29 03:30:00+0200"]),
        ("30 2 29 3 * 15", "2026-03-28T12:00", ["03-29 03:00:00+0200", "03-29 02:30:15+0200"]),
    ],
)
@proves("triggers.gap")
def test_a_skipped_time_is_due_after_the_gap(line: str, after: str, expected: list[str]) -> None:
    assert firings(line, "Europe/Berlin", after, 2) == expected


@pytest.mark.parametrize(
    ("line", "after", "expected"),
    [
        ("30 2 * * *", "2026-10-24T12:00", ["10-25 02:30:00+0200", "10-26 02:30:00+0100"]),
        ("30 2 * * *", "2026-10-25T02:15+01:00", ["10-26 02:30:00+0100", "10-27 02:30:00+0100"]),
        ("30 * * * *", "2026-10-25T01:45", ["10-25 02:30:00+0200", "10-25 02:30:00+0100"]),
        ("*/30 2 * * *", "2026-10-25T01:45", ["10-25 02:00:00+0200", "10-25 02:30:00+0200", "10-25 02:00:00+0100"]),
        ("*/30 * * * *", "2026-10-25T02:30+02:00", ["10-25 02:00:00+0100", "10-25 02:30:00+0100"]),
        ("*/30 * * * *", "2026-10-25T02:10+01:00", ["10-25 02:30:00+0100", "10-25 03:00:00+0100"]),
    ],
)
@proves("triggers.twice")
def test_a_repeated_time_is_due_once_if_named_and_twice_as_an_interval(
    line: str, after: str, expected: list[str]
) -> None:
    assert firings(line, "Europe/Berlin", after, len(expected)) == expected


def test_a_skipped_day_is_due_at_the_start_of_the_next() -> None:
    assert firings("0 12 * * *", "Pacific/Apia", "2011-12-29T13:00", 2) == [
        "12-31 00:00:00+1400",
        "12-31 12:00:00+1400",
    ]


def test_a_clock_change_of_half_an_hour_is_handled() -> None:
    assert firings("15 2 * * *", "Australia/Lord_Howe", "2026-10-03T12:00", 2) == [
        "10-04 02:30:00+1100",
        "10-05 02:15:00+1100",
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 0 13 * fri", ["01-02", "01-09", "01-13"]),  # one of both is enough
        ("0 0 */2 * fri", ["01-09", "01-23"]),  # a star makes it both
        ("0 0 L * *", ["01-31", "02-28", "03-31"]),
        ("0 0 1 jan-mar,DEC *", ["02-01", "03-01", "12-01"]),
        ("0 0 * * sat-sun", ["01-03", "01-04", "01-10"]),
        ("0 0 * * fri-mon", ["01-02", "01-03", "01-04", "01-05", "01-09"]),
        ("0 0 29 2 *", ["02-29", "02-29"]),
        ("0 22-2/2 2 1 *", ["01-02", "01-02", "01-02"]),
        ("0 0 8,*/10 * 0-6", ["01-02", "01-03", "01-04"]),  # one of both is enough, and each day fits the second
        ("0 0 1-31 * fri", ["01-02", "01-03", "01-04"]),
        ("0 0 8,*/10 * fri", ["01-02", "01-08", "01-09", "01-11"]),
        ("0 0 */10 * 0-6", ["01-11", "01-21", "01-31"]),
    ],
)
def test_days_are_combined_like_in_cron(line: str, expected: list[str]) -> None:
    found = firings(line, "UTC", "2026-01-01T00:00", len(expected))
    assert [each[:5] for each in found] == expected


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("0 22-10/5 * * *", ["01-01 03:00", "01-01 08:00", "01-01 22:00", "01-02 03:00"]),
        ("50-10/7 3 * * *", ["01-01 03:04", "01-01 03:50", "01-01 03:57", "01-02 03:04"]),
        ("0 0 28-5/3 * *", ["01-03 00:00", "01-28 00:00", "01-31 00:00", "02-03 00:00"]),
        ("0 0 1 nov-feb/2 *", ["11-01 00:00", "01-01 00:00", "11-01 00:00"]),
        ("0 0 * * 5-1/2", ["01-02 00:00", "01-04 00:00", "01-09 00:00"]),
        ("*/70 * * * *", ["01-01 01:00", "01-01 02:00"]),
        ("40/15 5 * * *", ["01-01 05:40", "01-01 05:55", "01-02 05:40"]),
    ],
)
@proves("triggers.oracle")
def test_a_step_counts_from_the_first_value_of_its_range(line: str, expected: list[str]) -> None:
    found = firings(line, "UTC", "2026-01-01T00:00", len(expected))
    assert [each[:11] for each in found] == expected


def test_a_sixth_field_is_the_second() -> None:
    assert firings("0 9 * * * 15", "UTC", "2026-01-01T00:00", 1) == ["01-01 09:00:15+0000"]
    assert names_many_seconds("0 9 * * * */20")
    assert names_many_seconds("0 9 * * * *")
    assert not names_many_seconds("0 9 * * * 15")
    assert not names_many_seconds("* * * * *")


@pytest.mark.parametrize(
    "line",
    [
        "",
        "* * * *",
        "* * * * * * 2027",
        "60 * * * *",
        "* 24 * * *",
        "* * 32 * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "a * * * *",
        "*/0 * * * *",
        "5-5 * * * *",
        "* * * jan-1 *",
        "* * * * mon-",
        "0 0 31 feb *",
        "0 0 30 2 *",
        "@daily",
        "h * * * *",
        "r * * * *",
        "0 0 15w * *",
        "0 0 * * 1#2",
        "0 0 ? * *",
        "* * 1-0 * *",
        "\u0661 * * * *",
        "1,,2 * * * *",
        "*-5 * * * *",
        "-1 * * * *",
        "1.5 * * * *",
        "* * * * * 60",
    ],
)
def test_an_invalid_cron_line_is_refused(line: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_cron(line)
    assert caught.value.fields["field"] == "schedule"
    assert repr(line) in caught.value.message


def _field(low: int, high: int) -> st.SearchStrategy[str]:
    value = st.integers(low, high)
    several = st.lists(value, min_size=1, max_size=4, unique=True).map(lambda items: ",".join(map(str, items)))
    span = st.tuples(value, value).filter(lambda pair: pair[0] < pair[1])
    step = st.integers(1, high)
    return st.one_of(
        st.just("*"),
        several,
        span.map(lambda pair: f"{pair[0]}-{pair[1]}"),
        step.map(lambda by: f"*/{by}"),
        st.tuples(span, step).map(lambda given: f"{given[0][0]}-{given[0][1]}/{given[1]}"),
    )


# Mostly any day, so that most lines fire within the days that are looked at.
ANY_DAY = st.just("*")
LINES = st.tuples(
    _field(0, 59),
    _field(0, 23),
    st.one_of(ANY_DAY, ANY_DAY, _field(1, 31), st.just("L")),
    st.one_of(ANY_DAY, ANY_DAY, _field(1, 12)),
    st.one_of(ANY_DAY, ANY_DAY, _field(0, 6), st.just("mon-fri")),
).map(" ".join)


@st.composite
def changes(draw: st.DrawFn, names: Sequence[str]) -> tuple[str, datetime]:
    """A zone and a moment at most three days before its clocks change, where they do."""
    zone = ZoneInfo(draw(st.sampled_from(names)))
    moment = draw(st.datetimes(datetime(2005, 1, 1), datetime(2037, 1, 1), timezones=st.just(UTC)))
    for day in range(200):
        later = moment + timedelta(days=day)
        if later.astimezone(zone).utcoffset() != moment.astimezone(zone).utcoffset():
            back = draw(st.integers(0, 3 * 86_400))
            return zone.key, (later - timedelta(seconds=back)).replace(microsecond=0)
    return zone.key, moment.replace(microsecond=0)


CYCLES = ((0, 59, 59), (0, 23, 23), (1, 31, 31), (1, 12, 12), (0, 6, 7))
"""The first value of each field, its last, and the last that may be written: Sunday is 0 and 7."""


@st.composite
def items(draw: st.DrawFn, place: int) -> tuple[str, frozenset[int]]:
    """An item of a field, and its meaning by the documents."""
    first, last, written = CYCLES[place]
    step = draw(st.integers(1, 99))
    kind = draw(st.sampled_from(("star", "value", "range", "stepped value")))
    if kind == "star":
        return f"*/{step}", frozenset(range(first, last + 1, step))
    low, high = draw(st.integers(first, written)), draw(st.integers(first, written))
    if kind == "value" or low == high:
        return str(low), frozenset({low % 7 if place == 4 else low})
    if kind == "stepped value":
        low = min(low, last)
        return f"{low}/{step}", frozenset(range(low, last + 1, step))
    walk = [*range(low, high + 1)] if low < high else [*range(low, last + 1), *range(first, high + 1)]
    if place == 4 and low == 7:
        walk = [*range(high + 1)]
    text = f"{low}-{high}" if step == 1 else f"{low}-{high}/{step}"
    return text, frozenset(value % 7 if place == 4 else value for value in walk[::step])


@st.composite
def lines(draw: st.DrawFn) -> tuple[str, list[frozenset[int]]]:
    """A line of any form, and the values of its fields."""
    texts: list[str] = []
    values: list[frozenset[int]] = []
    for place in range(5):
        found = draw(st.lists(items(place), min_size=1, max_size=3))
        texts.append(",".join(text for text, _ in found))
        values.append(frozenset[int]().union(*(meant for _, meant in found)))
    return " ".join(texts), values


@proves("triggers.oracle")
@given(given=lines(), start=st.datetimes(datetime(2024, 1, 1), datetime(2028, 1, 1)))
def test_a_line_fires_at_each_time_that_its_fields_name(
    given: tuple[str, list[frozenset[int]]], start: datetime
) -> None:
    line, (minutes, hours, days, months, weekdays) = given
    _, _, day_field, _, weekday_field = line.split()
    either = not (day_field.startswith("*") or weekday_field.startswith("*"))
    start = start.replace(tzinfo=UTC)
    expected: list[datetime] = []
    day = start.replace(hour=0, minute=0, second=0, microsecond=0)
    for _ in range(40):
        fits = (day.day in days, day.isoweekday() % 7 in weekdays)
        if day.month in months and (any(fits) if either else all(fits)):
            expected += [day.replace(hour=hour, minute=minute) for hour in sorted(hours) for minute in sorted(minutes)]
        day += timedelta(days=1)
    expected = [each for each in expected if each > start][:100]
    try:
        line = parse_cron(line)
    except InvalidInput:
        assert not expected
        return
    found = takewhile(lambda moment: moment < day, cron_firings(line, ZoneInfo("UTC"), after=start))
    assert list(islice(found, 100)) == expected


def second_opinion(line: str, zone: ZoneInfo, after: datetime) -> Iterator[datetime]:
    """Return what cronsim says, but for what is past: in an hour that comes twice it begins with the first time."""
    moments = (moment.astimezone(UTC) for moment in CronSim(line, after.astimezone(zone)))
    return (moment for moment in moments if moment > after)


@proves("triggers.oracle")
@given(line=LINES, where=changes(PLAIN_ZONES))
@example(line="*/15 2 * * *", where=("Europe/Berlin", datetime(2026, 3, 28, 12, tzinfo=UTC)))
@example(line="1 0-2 * * *", where=("Europe/Berlin", datetime(2026, 10, 25, 1, tzinfo=UTC)))
def test_lines_fire_at_the_times_of_cronsim(line: str, where: tuple[str, datetime]) -> None:
    """Over the clock changes of real zones, except for one kind of line (see below)."""
    name, after = where
    zone = ZoneInfo(name)
    try:
        parse_cron(line)
        expected = list(islice(second_opinion(line, zone, after), 40))
    except (InvalidInput, CronSimError):
        assume(False)
        return
    ours = list(islice(cron_firings(parse_cron(line), zone, after=after), 40))
    minute, hour = line.split()[:2]
    if minute.startswith("*") and not hour.startswith("*"):
        # cronsim leaves out an interval's day whose hours fall into a gap; we make up for it at once after the gap.
        made_up = [each for each in ours if each not in expected]
        assert all(_skipped(each, zone) for each in made_up)
        ours = [each for each in ours if each not in made_up]
        expected = expected[: len(ours)]
    assert ours == expected


def minute_by_minute(line: str, zone: ZoneInfo, after: datetime, until: datetime) -> list[datetime]:
    """Return firings by looking at the zone's clock every minute, as a daemon would."""
    fields = CronSim(line, datetime(2020, 1, 1))
    minute, hour = line.split()[:2]
    interval = minute.startswith("*") or hour.startswith("*")

    def fits(wall: datetime) -> bool:
        return (
            wall.minute in fields.minutes
            and wall.hour in fields.hours
            and wall.month in fields.months
            and fields.match_day(wall)
        )

    found: list[datetime] = []
    moment = after.replace(second=0) + timedelta(minutes=1)
    while moment <= until:
        shown = moment.astimezone(zone)
        due = fits(shown) and (interval or shown.fold == 0)
        skipped = () if hour.startswith("*") else _skipped(moment, zone)
        if due or any(map(fits, skipped)):
            found.append(moment)
        moment += timedelta(minutes=1)
    return found


def _skipped(moment: datetime, zone: ZoneInfo) -> list[datetime]:
    """Return the wall times that clocks of a zone leave out when they come to this minute."""
    before, at = (each.astimezone(zone).replace(tzinfo=None) for each in (moment - timedelta(minutes=1), moment))
    return [before + timedelta(minutes=more) for more in range(1, (at - before) // timedelta(minutes=1))]


@proves("triggers.oracle", "triggers.gap", "triggers.twice")
@given(line=LINES, where=changes(ZONES))
@example(line="* */18 10 * *", where=("America/Santiago", datetime(2010, 10, 9, 0, 15, 9, tzinfo=UTC)))
@example(line="26-41/50 */8 * * *", where=("America/St_Johns", datetime(2007, 11, 3, 2, 23, 17, tzinfo=UTC)))
@example(line="33 * * * *", where=("Australia/Lord_Howe", datetime(2005, 10, 28, 5, 3, 29, tzinfo=UTC)))
@example(line="0 12 * * *", where=("Pacific/Apia", datetime(2011, 12, 29, 5, tzinfo=UTC)))
def test_lines_fire_as_by_watching_the_clock(line: str, where: tuple[str, datetime]) -> None:
    """In zones too whose changes cronsim cannot do: of half an hour, at one minute past midnight, of a whole day."""
    name, after = where
    zone, until = ZoneInfo(name), after + timedelta(days=4)
    try:
        parse_cron(line)
        expected = minute_by_minute(line, zone, after, until)
    except (InvalidInput, CronSimError):
        assume(False)
        return
    assert (
        list(takewhile(lambda moment: moment <= until, cron_firings(parse_cron(line), zone, after=after))) == expected
    )


@given(line=LINES, where=changes(ZONES), cut=st.integers(0, 19))
def test_firings_increase_and_do_not_depend_on_the_starting_point(
    line: str, where: tuple[str, datetime], cut: int
) -> None:
    name, after = where
    zone = ZoneInfo(name)
    try:
        line = parse_cron(line)
    except InvalidInput:
        assume(False)
    whole = list(islice(cron_firings(line, zone, after=after), 20))
    assert all(one < two for one, two in pairwise([after, *whole]))
    cut = min(cut, len(whole) - 1)
    rest = list(islice(cron_firings(line, zone, after=whole[cut]), 20 - cut - 1))
    assert rest == whole[cut + 1 :]
