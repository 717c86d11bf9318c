"""Every number and name that a provider sends is bounded, in each engine."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from types import SimpleNamespace
from typing import Any

import pytest
from anthropic.types.beta import BetaUsage
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.anthropic.catalog import Prices
from nova_workers.engines.claude_agent.reading import usage_of
from nova_workers.engines.codex.program import Codex
from nova_workers.engines.gemini.program import Gemini
from nova_workers.engines.openai.failures import stream_failure
from nova_workers.engines.openai.untyped import counted
from nova_workers.engines.prices import ModelPrice, PriceList
from nova_workers.engines.programs.frames import Finished
from nova_workers.engines.resilience import AttemptFailed
from tests.requirements import proves

HOSTILE: tuple[Any, ...] = (
    -1,
    -1e300,
    10**30,
    1e300,
    float("inf"),
    float("-inf"),
    float("nan"),
    True,
    None,
    "17",
    "x" * 10_000,
    [1],
    {"a": 1},
)
PRICE = {"*": ModelPrice(75.0, 375.0, 7.5, 93.75)}


def _anthropic(value: Any) -> TokenUsage:
    usage = BetaUsage.model_construct(
        input_tokens=value,
        output_tokens=value,
        cache_read_input_tokens=value,
        cache_creation_input_tokens=value,
        output_tokens_details=SimpleNamespace(thinking_tokens=value),
        server_tool_use=SimpleNamespace(web_search_requests=value),
    )
    return Prices(PRICE).usage(usage, "m")


def _openai(value: Any) -> TokenUsage:
    details = {"cached_tokens": value, "cache_write_tokens": value, "reasoning_tokens": value}
    usage = {
        "prompt_tokens": value,
        "completion_tokens": value,
        "prompt_tokens_details": details,
        "completion_tokens_details": details,
    }
    tokens = counted(usage, read="prompt_tokens", produced="completion_tokens")
    return PriceList(None, PRICE).priced(tokens or TokenUsage(), ("m",))


def _claude_agent(value: Any) -> TokenUsage:
    names = ("input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    groups = {"output_tokens_details": {"thinking_tokens": value}, "server_tool_use": {"web_search_requests": value}}
    return usage_of(Prices(PRICE), {**dict.fromkeys(names, value), **groups}, "m")


def _codex(value: Any) -> TokenUsage:
    names = ("input_tokens", "cached_input_tokens", "cache_write_input_tokens", "output_tokens")
    counts = dict.fromkeys((*names, "reasoning_output_tokens"), value)
    (frame,) = Codex().frames({"type": "turn.completed", "usage": counts})
    assert isinstance(frame, Finished)
    assert frame.usage is not None
    return PriceList(None, PRICE).priced(frame.usage, ("m",))


def _gemini(value: Any) -> TokenUsage:
    stats = dict.fromkeys(("input_tokens", "cached", "output_tokens", "total_tokens"), value)
    (frame,) = Gemini().frames({"type": "result", "status": "success", "stats": stats})
    assert isinstance(frame, Finished)
    assert frame.usage is not None
    return PriceList(None, PRICE).priced(frame.usage, ("m",))


@dataclass(frozen=True)
class Reader:
    name: str
    read: Callable[[Any], TokenUsage]


READERS = [Reader(read.__name__, read) for read in (_anthropic, _openai, _claude_agent, _codex, _gemini)]


@proves("engine.bounds")
@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
@pytest.mark.parametrize("value", HOSTILE, ids=lambda value: str(value)[:12])
def test_counts_of_each_engine_are_bounded(reader: Reader, value: Any) -> None:
    usage = reader.read(value)
    for field in fields(TokenUsage):
        count = getattr(usage, field.name)
        if field.name == "cost_usd":
            assert 0 <= count <= bounds.MAX_COST_USD
        else:
            assert type(count) is int
            assert 0 <= count <= 2 * bounds.MAX_COUNT


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.name)
def test_plain_counts_are_kept(reader: Reader) -> None:
    usage = reader.read(7)
    assert usage.output_tokens == 7


@given(st.one_of(st.text(max_size=30), st.floats().map(str), st.integers().map(str)), st.booleans())
def test_a_requested_wait_is_at_most_300_seconds(given: str, in_ms: bool) -> None:
    wait_s = bounds.retry_after_s({"retry-after-ms" if in_ms else "retry-after": given})
    assert wait_s is None or 0 <= wait_s <= 300


@pytest.mark.parametrize(
    "given",
    [
        "1e300",
        "9" * 5_000,
        "Fri, 31 Dec 9999 23:59:59 GMT",
        "Mon, 01 Jan 99999999999999999999 00:00:00 GMT",
        format_datetime(datetime.now(UTC) + timedelta(days=400), usegmt=True),
        "Mon, 01 Jan 1990 00:00:00 GMT",
    ],
)
def test_far_dates_and_huge_waits_are_cut(given: str) -> None:
    wait_s = bounds.retry_after_s({"retry-after": given})
    assert wait_s is None or 0 <= wait_s <= 300


def test_a_failure_holds_no_longer_wait_from_any_engine() -> None:
    failure = AttemptFailed("no", kind="rate_limit", retryable=True, cause="rate_limit", retry_after_s=1e9)
    assert failure.retry_after_s == 300


def test_a_request_over_the_limit_of_a_minute_says_nothing_of_its_key() -> None:
    said = "Request too large for gpt-5 on tokens per min (TPM): Limit 30000, Requested 51200."
    failure = stream_failure("rate_limit_exceeded", said)
    assert isinstance(failure, AttemptFailed)
    assert (failure.cause, failure.kind) == ("request", "context_overflow")


def test_names_and_words_are_cut() -> None:
    assert bounds.name("m" * 10_000) == "m" * 200
    assert bounds.name({"a": 1}) == ""
    assert bounds.name("a\x00b") == "a\ufffdb"
    assert len(bounds.said("no " * 10_000)) < 1_010
    failure = stream_failure("c" * 10_000, "no " * 10_000)
    assert len(failure.message) < 1_400
