"""Tries a provider with each of its keys. Nothing that the server writes gets into the reason: it may repeat a key."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

import structlog

from nova_workers.base.errors import EngineFailure
from nova_workers.engines.resilience import AttemptFailed

_log = structlog.get_logger(__name__)

_Request = Callable[[], Awaitable[object]]
_Judge = Callable[[Exception], EngineFailure]

_PAUSE_S: Final = 1.0
"""Before the second attempt: one lost packet must not make a provider unavailable."""
_CREDENTIAL_STATUSES: Final = (401, 402)
"""Not 403: a key may be permitted to ask models and not to list them."""


async def why_not_reached(keys: Mapping[str, _Request], judge: _Judge, *, timeout_s: float) -> str | None:
    """Return why no key of a provider gets an answer; None if one does. Takes twice `timeout_s` and a second at most.

    Args:
        keys: A request for each key, by the key's name.
        judge: What an exception of a request means.
        timeout_s: Longest wait for one answer.
    """
    reasons = await asyncio.gather(*(_why_not(request, judge, timeout_s) for request in keys.values()))
    if None in reasons:
        return None
    if len(set(reasons)) == 1:
        return reasons[0]
    return "; ".join(f"key {name!r}: {why}" for name, why in zip(keys, reasons, strict=True))


async def _why_not(request: _Request, judge: _Judge, timeout_s: float) -> str | None:
    why, may_pass = await _attempt(request, judge, timeout_s)
    if may_pass:
        await asyncio.sleep(_PAUSE_S)
        why, _ = await _attempt(request, judge, timeout_s)
    return why


async def _attempt(request: _Request, judge: _Judge, timeout_s: float) -> tuple[str | None, bool]:
    """Return why there was no answer, None if there was; and whether there may be one in a moment."""
    try:
        async with asyncio.timeout(timeout_s):
            await request()
    except TimeoutError:
        return f"it does not answer within {timeout_s:g} s", True
    except Exception as error:
        return _reason(error, judge(error))
    return None, False


def _reason(error: Exception, failure: EngineFailure) -> tuple[str | None, bool]:
    status = getattr(error, "status_code", None)
    if status in _CREDENTIAL_STATUSES:
        return f"it refuses the key ({status})", False
    if isinstance(status, int):
        is_down = isinstance(failure, AttemptFailed) and failure.cause == "transport"
        return (f"it answers with the error {status}", True) if is_down else (None, False)
    if failure.kind == "auth_failure":
        return "it has no key", False
    if failure.kind == "unknown":
        # Our defect, or the SDK's, says nothing about the provider.
        _log.warning("provider.not_tried", error=type(error).__name__, exc_info=error)
        return None, False
    # An SDK has one exception for all that fails in its HTTP client, whose own has the more precise name.
    return f"it cannot be reached ({type(error.__cause__ or error).__name__})", True
