"""Checks of bounds: on the size, depth and time of what a client sends. None of these requests can take effect."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus

from nova_workers.cli.operations.findings import Finding
from nova_workers.cli.security.raw import send_raw, written

_PROMPT_S = 10.0
"""The time for an answer that needs no further byte of the client."""
_HEAD_BYTES = 256 * 1024
_BODY_BYTES = 10 * 1024**3
_BRACKETS = 1_000_000


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A request, and how a server refuses it.

    Attributes:
        statuses: What it answers then. None stands for closing the connection without an answer.
        slow: Whether the rest of the request is to come, so that only time ends it.
    """

    name: str
    data: bytes
    statuses: frozenset[int | None]
    fix: str
    slow: bool = False


async def check_bounds(url: str, key: str | None, *, patience_s: float) -> list[Finding]:
    """Check what a server does with requests that are too large, too deep or never complete.

    Args:
        key: A valid one with the scope `runs`; without it bodies are not tried.
        patience_s: How long a slow client waits to be cut off.
    """
    attempts = [*_without_key(url), *(_with_key(url, key) if key else ())]
    return list(await asyncio.gather(*(_check(url, attempt, patience_s) for attempt in attempts)))


def _without_key(url: str) -> list[_Attempt]:
    return [
        _Attempt(
            "large head",
            written(url, "GET", "/healthz", x_large="x" * _HEAD_BYTES),
            frozenset({None, 400, 413, 414, 431}),
            "let the proxy in front bound heads; the API takes 32 KB",
        ),
        _Attempt(
            "slow head",
            written(url, "GET", "/healthz")[:-2],
            frozenset({None, 400, 408}),
            "lower NOVA_API__HEAD_TIMEOUT_S, or the timeout of the proxy in front",
            slow=True,
        ),
        _Attempt(
            "key before body",
            _run(url, None, 1_000),
            frozenset({401}),
            "a request without a key should be refused before its body is read: does a proxy buffer requests?",
        ),
    ]


def _with_key(url: str, key: str) -> list[_Attempt]:
    return [
        _Attempt(
            "large body",
            _run(url, key, _BODY_BYTES),
            frozenset({None, 413}),
            "lower NOVA_API__MAX_BODY_BYTES, or the bound of the proxy in front",
        ),
        _Attempt(
            "deep body",
            _run(url, key, _BRACKETS) + b"[" * _BRACKETS,
            frozenset({400, 413}),
            "update the API: it refuses more than 64 levels before it parses",
        ),
        _Attempt(
            "slow body",
            _run(url, key, 1_000) + b"{",
            frozenset({None, 408}),
            "lower NOVA_API__BODY_TIMEOUT_S, or the timeout of the proxy in front",
            slow=True,
        ),
    ]


async def _check(url: str, attempt: _Attempt, patience_s: float) -> Finding:
    outcome = await send_raw(url, attempt.data, wait_s=patience_s if attempt.slow else _PROMPT_S)
    if not outcome.silent and outcome.status in attempt.statuses:
        return Finding(attempt.name, "ok", str(outcome))
    if outcome.status == HTTPStatus.FORBIDDEN:
        return Finding(attempt.name, "warn", f"not tried: {outcome}", "give a key with the scope `runs`")
    if outcome.status == HTTPStatus.TOO_MANY_REQUESTS:
        return Finding(attempt.name, "warn", f"not tried: {outcome}", "repeat it in a minute")
    return Finding(attempt.name, "fail", str(outcome), attempt.fix)


def _run(url: str, key: str | None, body_bytes: int) -> bytes:
    """Return the head of a message to an agent, whose body does not follow."""
    bearer = {"authorization": f"Bearer {key}"} if key else {}
    return written(url, "POST", "/v1/runs", content_type="application/json", content_length=str(body_bytes), **bearer)
