"""Schedules as the builder of triggers has them: in fields, as the API takes them, and in words."""

from __future__ import annotations

import pytest

from nova_workers.base.errors import InvalidInput
from nova_workers.console.forms import Form
from nova_workers.console.schedules import built_from, schedule_of, sentence


@pytest.mark.parametrize(
    ("kind", "schedule", "words"),
    [
        ("every", "3600", "Fires every hour."),
        ("every", "5400", "Fires every 90 minutes."),
        ("every", "172800", "Fires every 2 days."),
        ("cron", "0 9 * * 1-5", "Fires on working days, Monday to Friday, at 09:00, Europe/Berlin time."),
        ("cron", "30 17 * * 2,7", "Fires on Tuesday and Sunday at 17:30, Europe/Berlin time."),
        ("cron", "5 0 * * *", "Fires every day at 00:05, Europe/Berlin time."),
        ("cron", "@weekly", "Fires on Sunday at 00:00, Europe/Berlin time."),
        ("cron", "0 9,17 * * 6,0", "Fires on Saturday and Sunday at 09:00 and 17:00, Europe/Berlin time."),
        ("cron", "*/5 * * * *", "Fires every 5 minutes, Europe/Berlin time."),
        ("cron", "*/7 * * * *", "Fires by the cron line */7 * * * *, Europe/Berlin time."),
        ("cron", "5 * * * *", "Fires every hour, at minute 5, Europe/Berlin time."),
        ("cron", "0 */6 * * *", "Fires every 6 hours, at minute 0, Europe/Berlin time."),
        ("cron", "30 8 1 * *", "Fires on day 1 of each month at 08:30, Europe/Berlin time."),
        ("cron", "61 * * * *", "Fires by the cron line 61 * * * *, Europe/Berlin time."),
        ("cron", "0 9,25 * * *", "Fires by the cron line 0 9,25 * * *, Europe/Berlin time."),
        ("cron", "0 9 1 * 1", "Fires by the cron line 0 9 1 * 1, Europe/Berlin time."),
        ("at", "2031-01-01T00:00:00Z", ""),
    ],
)
def test_a_schedule_is_a_sentence(kind: str, schedule: str, words: str) -> None:
    assert sentence(kind, schedule, "Europe/Berlin") == words


@pytest.mark.parametrize("schedule", ["0 9 * * 1,2,3,4,5", "30 17 * * 7", "5 0 * * *"])
def test_a_weekly_schedule_is_the_same_after_the_builder(schedule: str) -> None:
    built = built_from("cron", schedule)
    form = Form({"kind": "weekly", "time": built.at}, {"day": tuple(built.days)})
    assert schedule_of(form) == ("cron", schedule)


def test_periods_have_units_and_missing_parts_are_named() -> None:
    assert schedule_of(Form({"kind": "every", "every": "90", "unit": "60"})) == ("every", "5400")
    assert schedule_of(Form({"kind": "every", "schedule": "120"})) == ("every", "120")
    assert schedule_of(Form({"kind": "cron", "schedule": "@daily"})) == ("cron", "@daily")
    for values, field in (
        ({"kind": "every", "every": "soon", "unit": "60"}, "every"),
        ({"kind": "weekly", "time": "09:00"}, "day"),
    ):
        with pytest.raises(InvalidInput) as refused:
            schedule_of(Form(values))
        assert refused.value.fields["field"] == field
