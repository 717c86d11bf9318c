"""Which occurrences are due, missed, or replaced by a later one."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from cronsim import CronSim
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.http.triggers import CatchUp
from nova_workers.domain.triggers.rules.occurrences import (
    COUNTED,
    ON_TIME_S,
    OccurrenceRule,
    Occurrences,
    check_jitter,
    jitter_of,
    window_s,
)
from nova_workers.domain.triggers.rules.schedules import parse_schedule
from tests.requirements import proves

MADE = datetime(2030, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
EVERY = OccurrenceRule("trg_1", "every", "60", "UTC", None, None, MADE, jitter_s=0, catchup_s=3600, catchup="once")
ZONES = ("UTC", "Europe/Berlin", "America/New_York", "Australia/Sydney", "Asia/Kathmandu", "Africa/Casablanca")
LINES = ("30 2 * * *", "0 9 * * mon-fri", "15 3 1 * *", "*/20 * * * *", "0 */6 * * *", "30 1 * * sun")


def test_an_occurrence_fires_at_its_time_and_not_before() -> None:
    occurrences, occurrence = Occurrences(), MADE + MINUTE
    early = occurrences.due(EVERY, occurrence, occurrence - timedelta(microseconds=1))
    assert (early.firing, early.next_occurrence) == ((), occurrence)
    due = occurrences.due(EVERY, occurrence, occurrence)
    assert (due.missed, due.passed_over, due.firing, due.next_occurrence) == (
        None,
        None,
        (occurrence,),
        occurrence + MINUTE,
    )


@given(
    late_s=st.integers(0, 40_000),
    catchup_s=st.integers(0, 20_000),
    jitter_s=st.integers(0, 59),
    catchup=st.sampled_from(("once", "each")),
    period_s=st.integers(60, 5_000),
)
def test_no_occurrence_is_lost_and_none_fires_twice(
    late_s: int, catchup_s: int, jitter_s: int, catchup: CatchUp, period_s: int
) -> None:
    """At any moment every occurrence is missed, skipped or fires: exactly one of these, in order."""
    occurrences = Occurrences()
    rule = replace(EVERY, schedule=str(period_s), catchup_s=catchup_s, jitter_s=jitter_s, catchup=catchup)
    period = timedelta(seconds=period_s)
    occurrence, now = MADE + period, MADE + period + timedelta(seconds=late_s)
    due = occurrences.due(rule, occurrence, now)
    for fired in due.firing:
        fires_at = fired + jitter_of(rule.trigger_id, fired, jitter_s)
        assert now - timedelta(seconds=window_s(catchup_s)) <= fires_at <= now
    counts = [0 if part is None else part[1] for part in (due.missed, due.passed_over)]
    assert due.next_occurrence is not None
    handled = (due.next_occurrence - occurrence) // period
    if max(counts) < COUNTED:
        assert handled == sum(counts) + len(due.firing)
    else:
        assert handled >= sum(counts) + len(due.firing)
    if catchup == "once":
        assert len(due.firing) <= 1
        # Nothing is left that would be due now.
        assert due.next_occurrence + jitter_of(rule.trigger_id, due.next_occurrence, jitter_s) > now


@given(
    late_s=st.floats(0, ON_TIME_S),
    catchup_s=st.integers(0, 2 * ON_TIME_S),
    jitter_s=st.integers(0, 599),
    catchup=st.sampled_from(("once", "each")),
)
@proves("triggers.catch-up")
def test_occurrences_on_time_fire_with_any_window(
    late_s: float, catchup_s: int, jitter_s: int, catchup: CatchUp
) -> None:
    occurrences, occurrence = Occurrences(), MADE + 10 * MINUTE
    rule = replace(EVERY, schedule="600", catchup_s=catchup_s, jitter_s=jitter_s, catchup=catchup)
    fires_at = occurrences.fire_at(rule, occurrence)
    assert fires_at is not None
    due = occurrences.due(rule, occurrence, fires_at + timedelta(seconds=late_s))
    assert (due.missed, due.firing[0]) == (None, occurrence)


@pytest.mark.parametrize(("late_s", "missed"), [(0.001, 0), (59, 0), (ON_TIME_S, 0), (ON_TIME_S + 0.001, 1), (601, 8)])
def test_without_a_window_the_latest_of_those_on_time_fires(late_s: float, missed: int) -> None:
    occurrences, occurrence = Occurrences(), MADE + MINUTE
    due = occurrences.due(replace(EVERY, catchup_s=0), occurrence, occurrence + timedelta(seconds=late_s))
    assert len(due.firing) == 1
    assert (0 if due.missed is None else due.missed[1]) == missed
    assert (0 if due.passed_over is None else due.passed_over[1]) == late_s // 60 - missed
    assert due.next_occurrence == due.firing[0] + MINUTE


@given(
    line=st.sampled_from(LINES),
    zone=st.sampled_from(ZONES),
    since=st.datetimes(datetime(2024, 1, 1), datetime(2029, 1, 1)),
    looks_s=st.lists(st.integers(1, 90_000), min_size=3, max_size=30),
)
@proves("triggers.oracle")
def test_firings_over_many_ticks_equal_those_of_a_second_implementation(
    line: str, zone: str, since: datetime, looks_s: list[int]
) -> None:
    """If each occurrence is caught up, the times and number of ticks do not matter."""
    occurrences, after = Occurrences(), since.replace(tzinfo=UTC)
    rule = OccurrenceRule(
        "trg_1", "cron", line, zone, None, None, after, jitter_s=0, catchup_s=2_592_000, catchup="each"
    )
    occurrence, now, fired = occurrences.next_after(rule, after), after, list[datetime]()
    for look_s in looks_s:
        now += timedelta(seconds=look_s)
        while occurrence is not None:
            due = occurrences.due(rule, occurrence, now)
            fired += due.firing
            if not due.firing:
                break
            occurrence = due.next_occurrence
    oracle = CronSim(line, after.astimezone(ZoneInfo(zone)))
    expected = list[datetime]()
    while (moment := next(oracle).astimezone(UTC)) <= now:
        expected.append(moment)
    assert fired == expected


def test_jitter_depends_only_on_trigger_and_occurrence() -> None:
    moments = [jitter_of("trg_1", MADE + at * MINUTE, 60) for at in range(200)]
    tokyo = MADE.astimezone(ZoneInfo("Asia/Tokyo"))
    assert moments == [jitter_of("trg_1", tokyo + at * MINUTE, 60) for at in range(200)]
    assert all(timedelta() <= each < MINUTE for each in moments)
    assert len(set(moments)) == 200
    assert 20 < sum(moment.total_seconds() for moment in moments) / 200 < 40
    assert jitter_of("trg_2", MADE, 60) != moments[0]
    assert jitter_of("trg_1", MADE, 0) == timedelta()


def test_a_jitter_as_long_as_a_period_is_refused() -> None:
    schedule = parse_schedule("cron", "0 9,10 * * *", "UTC")
    check_jitter(schedule, 3599, after=MADE, made_at=MADE)
    with pytest.raises(InvalidInput, match="jitter_s: 3600 is not less than the 3600 s"):
        check_jitter(schedule, 3600, after=MADE, made_at=MADE)
