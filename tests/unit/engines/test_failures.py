"""The provider's requested wait, in each of its formats."""

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import anthropic
import httpx2
import pytest

from nova_workers.engines.anthropic.failures import failure_of
from nova_workers.engines.resilience import AttemptFailed


def _failure(headers: dict[str, str]) -> AttemptFailed:
    request = httpx2.Request("POST", "http://model/v1/messages")
    response = httpx2.Response(429, headers=headers, request=request)
    failure = failure_of(anthropic.RateLimitError("slow down", response=response, body=None))
    assert isinstance(failure, AttemptFailed)
    return failure


@pytest.mark.parametrize(
    ("headers", "wait_s"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after": "-3"}, 0.0),
        ({"retry-after": "7", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after-ms": "soon"}, None),
    ],
)
def test_the_delay_that_the_provider_requests(headers: dict[str, str], wait_s: float | None) -> None:
    assert _failure(headers).retry_after_s == wait_s


def test_a_date_is_a_delay_until_then() -> None:
    date = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert _failure({"retry-after": date}).retry_after_s == pytest.approx(60, abs=2)
