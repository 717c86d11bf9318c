"""How values are shown."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest

from nova_workers.console.formats import NOTHING, cost, duration, filters, size, tokens, usd
from nova_workers.contracts.http.wire import UsageView
from tests.support.harness.manual_clock import ManualClock


@pytest.mark.parametrize(
    ("ago_s", "words"),
    [
        (0, "now"),
        (59, "59 s ago"),
        (3_599, "59 min ago"),
        (86_399, "23 h ago"),
        (86_400 * 29, "29 d ago"),
        (86_400 * 90, "3 mo ago"),
        (86_400 * 800, "2 y ago"),
        (-90, "in 1 min"),
    ],
)
def test_a_time_is_relative_and_has_the_absolute_one(ago_s: float, words: str) -> None:
    clock = ManualClock()
    time: Callable[..., object] = filters(clock)["time"]
    at = clock.now() - timedelta(seconds=ago_s)
    assert f">{words}</time>" in str(time(at))
    assert at.strftime("%Y-%m-%d %H:%M:%S UTC") in str(time(at))


def test_a_duration_that_is_not_known_is_a_dash() -> None:
    assert (duration(None), duration(61)) == (NOTHING, "1 min 1 s")
    assert (duration(0), duration(0.0123), duration(0.9994), duration(0.9996)) == ("0 ms", "12 ms", "999 ms", "1.0 s")


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0"), (999, "999"), (1_000, "1k"), (12_345, "12.3k"), (999_499, "999k"), (999_600, "1M")]
)
def test_tokens_have_three_digits(count: int, shown: str) -> None:
    assert tokens(count) == shown


@pytest.mark.parametrize(("amount", "shown"), [(0, "$0"), (0.00012, "$0.0001"), (0.5, "$0.50"), (1234.5, "$1,234.50")])
def test_money_has_cents_from_ten_cents_on(amount: float, shown: str) -> None:
    assert usd(amount) == shown


def test_an_unknown_price_is_not_nothing() -> None:
    assert "price of the model is unknown" in str(usd(None))


def test_what_no_model_answered_yet_has_no_unknown_price() -> None:
    def used(tokens: int, cost_usd: float | None) -> UsageView:
        return UsageView(input_tokens=tokens, cost_usd=cost_usd)

    assert cost(None) == cost(used(0, None)) == NOTHING
    assert cost(used(3, None)) == usd(None)
    assert (cost(used(0, 0.0)), cost(used(3, 0.5))) == ("$0", "$0.50")


def test_codes_that_are_no_words_are_spoken() -> None:
    words: Callable[..., object] = filters(ManualClock())["words"]
    assert [words(code) for code in ("api", "waiting_for_child", "timed_out")] == [
        "API", "waits for an agent", "timed out"
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("count", "shown"), [(0, "0 B"), (1_023, "1023 B"), (1_024, "1.0 KiB"), (5_242_880, "5.0 MiB")]
)
def test_a_size_has_a_unit(count: int, shown: str) -> None:
    assert size(count) == shown


def test_what_takes_time_is_counted_until_now() -> None:
    clock = ManualClock()
    took: Callable[..., object] = filters(clock)["took"]
    begin = clock.now() - timedelta(seconds=125)
    assert ">2 min 5 s</span>" in str(took(begin, None))
    assert (took(begin, clock.now()), took(None, None)) == ("2 min 5 s", NOTHING)


def test_what_is_due_was_never_ago() -> None:
    clock = ManualClock()
    due: Callable[..., object] = filters(clock)["due"]
    assert [">now<" in str(due(clock.now() + timedelta(seconds=age_s))) for age_s in (-20, 0, 40)] == [
        True,
        True,
        False,
    ]


def test_a_time_as_the_api_writes_it_is_shown_for_people() -> None:
    shown = filters(ManualClock())
    time: Callable[..., object] = shown["time"]
    text: Callable[..., object] = shown["clock"]
    assert "2026-11-23 09:30:00 UTC" in str(time("2026-11-23T10:30:00.123456+01:00"))
    assert text("2026-11-23T10:30:00.123456+01:00") == "Mon 2026-11-23 10:30"
