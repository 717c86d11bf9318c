"""Points in time, periods and bounds: when a trigger fires."""

from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.http.triggers import TriggerKind
from nova_workers.domain.triggers.rules.schedules import next_firings, parse_schedule

MADE = datetime(2030, 1, 1, 12, 0, 0, 250_000, tzinfo=UTC)


def firings(
    kind: TriggerKind,
    text: str,
    after: datetime = MADE,
    *,
    count: int = 3,
    starts_at: datetime | None = None,
    ends_at: datetime | None = None,
) -> list[datetime]:
    schedule = parse_schedule(kind, text, "Europe/Berlin", starts_at=starts_at, ends_at=ends_at)
    return list(islice(next_firings(schedule, after=after, made_at=MADE), count))


def test_a_period_counts_from_the_creation_of_the_trigger() -> None:
    assert firings("every", "60", count=2) == [MADE + timedelta(minutes=1), MADE + timedelta(minutes=2)]
    assert firings("every", "60", MADE + timedelta(minutes=2), count=1) == [MADE + timedelta(minutes=3)]
    assert firings("every", "60", MADE - timedelta(days=1), count=1) == [MADE + timedelta(minutes=1)]


def test_a_period_with_a_start_begins_with_it() -> None:
    start = MADE + timedelta(days=3)
    assert firings("every", "3600", starts_at=start, count=2) == [start, start + timedelta(hours=1)]
    assert firings("every", "3600", start, starts_at=start, count=1) == [start + timedelta(hours=1)]


@given(
    period_s=st.integers(60, 10_000_000),
    after_s=st.integers(-10_000_000, 100_000_000),
    start_s=st.none() | st.integers(-10_000_000, 10_000_000),
)
def test_a_period_never_drifts(period_s: int, after_s: int, start_s: int | None) -> None:
    after = MADE + timedelta(seconds=after_s)
    start = None if start_s is None else MADE + timedelta(seconds=start_s)
    found = firings("every", str(period_s), after, starts_at=start, count=3)
    first = MADE + timedelta(seconds=period_s) if start is None else start
    assert all(one < two for one, two in pairwise([after, *found]))
    assert all((each - first) % timedelta(seconds=period_s) == timedelta() for each in found)
    assert found[0] >= first
    assert found[0] == first or found[0] - timedelta(seconds=period_s) <= after


def test_a_single_time_is_due_once() -> None:
    assert firings("at", "2030-05-01T09:00:00.5+02:00") == [datetime(2030, 5, 1, 7, 0, 0, 500_000, tzinfo=UTC)]
    assert firings("at", "2030-01-01 12:00:00z") == []
    assert parse_schedule("at", "2030-05-01t09:00:00+02:00", "UTC").text == "2030-05-01T07:00:00Z"


def test_nothing_fires_before_the_start_or_after_the_end() -> None:
    start, end = datetime(2031, 1, 1, tzinfo=UTC), datetime(2031, 1, 3, tzinfo=UTC)
    inside = firings("cron", "0 1 * * *", starts_at=start, ends_at=end)
    assert inside == [start, start + timedelta(days=1), start + timedelta(days=2)], "01:00 in Berlin is 00:00 in UTC"
    assert firings("cron", "0 1 * * *", end, starts_at=start, ends_at=end) == []
    assert firings("at", "2030-12-31T00:00:00Z", starts_at=start) == []
    assert firings("at", "2032-12-31T00:00:00Z", ends_at=end) == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("every", "59"),
        ("every", "31622401"),
        ("every", "1e3"),
        ("every", "\u0666\u0660"),
        ("every", "P1D"),
        ("at", "2030-05-01"),
        ("at", "2030-05-01T09:00"),
        ("at", "2030-05-01T09:00:00"),
        ("at", "2030-05-01T25:00:00Z"),
        ("at", "2030-05-01T09:00:00+25:00"),
        ("at", "20300501T090000Z"),
        ("at", "0001-01-01T00:00:00+14:00"),
        ("at", "9999-12-31T23:59:59-14:00"),
        ("at", "2101-01-01T00:00:00Z"),
    ],
)
def test_an_invalid_schedule_is_refused(kind: TriggerKind, text: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_schedule(kind, text, "UTC")
    assert caught.value.fields["field"] == "schedule"


@pytest.mark.parametrize(
    "name", ["", "Nowhere", "EUROPE/BERLIN", "Europe/", "/etc/localtime", "../UTC", "a\x00b", "Factory"]
)
def test_an_unknown_time_zone_is_refused(name: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_schedule("every", "60", name)
    assert caught.value.fields["field"] == "timezone"
