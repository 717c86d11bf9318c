"""Replies, a clock, metrics and shortcuts for tests of resilience."""

import asyncio
from typing import Any, Protocol

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.engine import EngineCallbacks, EngineError, EngineOptions, EngineResult
from nova_workers.engines.anthropic import AnthropicEngine
from tests.support.servers.model_server import Asks, ModelServer, Part, Status, Stream

FINE = Stream((Part("text", ["Well", " done"]),))
OVERLOADED = Status(529, "overloaded_error", "overloaded")
BROKEN = Status(500, "api_error", "broken")
REFUSED = Status(401, "authentication_error", "invalid x-api-key")
LIMITED = Status(429, "rate_limit_error", "slow down", headers={"retry-after": "30"})


class MakeEngine(Protocol):
    """Builds an engine with the named profiles; see the fixture."""

    def __call__(self, *names: str, **given: Any) -> AnthropicEngine: ...


class FakeClock:
    """A monotonic clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


class CountingMetrics:
    """Metrics that can be read back."""

    def __init__(self) -> None:
        self.retries: list[tuple[str, str]] = []
        self.cooldowns: list[tuple[str, str]] = []
        self.fallbacks: list[tuple[str, str]] = []
        self.breaker: list[tuple[str, bool]] = []
        self.waits: list[tuple[str, float]] = []

    def record_model_retry(self, model: str, cause: str) -> None:
        self.retries.append((model, cause))

    def record_cooldown(self, profile: str, reason: str) -> None:
        self.cooldowns.append((profile, reason))

    def record_fallback(self, model: str, fallback: str) -> None:
        self.fallbacks.append((model, fallback))

    def set_breaker_open(self, model: str, *, is_open: bool) -> None:
        self.breaker.append((model, is_open))

    def observe_rate_limit_wait(self, model: str, waited_s: float) -> None:
        self.waits.append((model, waited_s))


async def turn(
    engine: AnthropicEngine,
    message: str = "hi",
    *,
    callbacks: EngineCallbacks | None = None,
    abort: AbortSignal | None = None,
    **options: Any,
) -> EngineResult:
    """Run a turn, in bounded time."""
    wanted: dict[str, Any] = {"model": "claude-sonnet-5-5", **options}
    running = engine.run(message, EngineOptions(**wanted), "sandbox", callbacks=callbacks, abort=abort)
    return await asyncio.wait_for(running, 60)


def error_of(result: EngineResult) -> EngineError:
    """Return the error that the turn must have ended with."""
    assert result.stop_reason == "error"
    assert result.error is not None
    return result.error


def key(name: str) -> Asks:
    """Pick requests with a profile's key."""
    return lambda headers, _: headers.get("authorization") == f"Bearer key-{name}"


def model(name: str) -> Asks:
    """Pick requests to a model."""
    return lambda _, body: body["model"] == name


def keys_used(server: ModelServer) -> list[str]:
    """Return the profiles by which the server was asked, in order."""
    return [headers["authorization"].removeprefix("Bearer key-") for headers in server.headers]


def models_asked(server: ModelServer) -> list[str]:
    """Return the models that the server was asked for, in order."""
    return [body["model"] for body in server.requests]
