"""Work orders on the harness: policies, orders, and an engine whose answers a test decides."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, text_of
from nova_workers.contracts.engine import (
    EngineError,
    EngineOptions,
    EngineResult,
    EngineUsage,
    TrustLevel,
    TurnListener,
)
from nova_workers.contracts.orders import AiWorkOrderV1, AiWorkResultV1, EngineTrace, PolicyDocument, build_order
from nova_workers.contracts.usage import CallBound, TokenPrice, TokenUsage
from nova_workers.domain.orders.rules.accept import AcceptedOrder, Orders
from nova_workers.domain.orders.rules.reviews import OrderReviews
from nova_workers.domain.orders.rules.sealing import OrderKeys
from nova_workers.domain.orders.rules.tick import OrderTicker
from nova_workers.domain.orders.sql.records import OrderRow, PartRow, get_order, list_parts
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.database import Database
from tests.support.harness.workers import Harness, Worker

SECRET = "a secret of the tests"
_KEY = f"test:{base64.b64encode(bytes(range(32))).decode()}"


def with_master_key(settings: Settings) -> Settings:
    """Return settings with a master key."""
    return Settings.model_validate(
        {
            "database_url": settings.database_url,
            "redis_url": settings.require_redis_url(),
            "home": settings.home,
            "telemetry": settings.telemetry.model_dump(),
            "secrets": {"keys": [_KEY]},
        }
    )


def proposal(value: str = "A better headline", confidence: float = 0.9) -> str:
    """Return an answer of a role that crafts."""
    payload = {
        "targetKey": "hero.headline",
        "value": value,
        "rationale": "It is shorter",
        "confidence": confidence,
        "risks": [],
        "assumptions": [],
    }
    return orjson.dumps(payload).decode()


def critique(*, approve: bool = True, best: int = 0, confidence: float = 0.8, issues: Sequence[str] = ()) -> str:
    """Return an answer of a role that reviews."""
    return orjson.dumps({"approve": approve, "best": best, "confidence": confidence, "issues": list(issues)}).decode()


def policy(roles: Mapping[str, str] | None = None, **fields: Any) -> PolicyDocument:
    """Return a policy.

    Args:
        roles: Kinds of roles by name; the model of a role has its name. Without any, one role crafts.
        fields: In camelCase; they replace the defaults.
    """
    return PolicyDocument.from_wire(
        {
            "id": "test_policy",
            "version": "1",
            "produces": "copy_proposal_v1",
            "roles": [
                {
                    "name": name,
                    "kind": kind,
                    "models": [{"engine": "scripted", "model": name, "provider": f"maker-of-{name}"}],
                    "prompt": {"system": "{{schema}}", "user": "{{inputs}} {{candidates}} {{critiques}}"},
                    "maxOutputTokens": 500,
                }
                for name, kind in (roles or {"craft": "craft"}).items()
            ],
            "caps": {"maxRounds": 3, "costCapUsd": 1.0, "maxTokensTotal": 50_000, "timeoutMs": 60_000},
            "presentation": {"modes": ["single_best", "side_by_side", "ranked"], "default": "single_best"},
            **fields,
        }
    )


@dataclass(frozen=True, slots=True)
class Asked:
    """A model call."""

    model: str
    system: str
    user: str
    max_tokens: int


Answering = Callable[[Asked], str | EngineError]


@dataclass
class AnsweringEngine:
    """An engine whose answers a test decides by model: a text, an error, a list of these in order, or a function.

    Attributes:
        calls: The model calls, in order.
        usage: Of each call.
        before: Called before each answer.
    """

    answers: dict[str, Sequence[str | EngineError] | str | EngineError | Answering]
    calls: list[Asked] = field(default_factory=list[Asked])
    usage: TokenUsage = field(default_factory=lambda: TokenUsage(input_tokens=100, output_tokens=50, cost_usd=0.01))
    before: Callable[[], Any] | None = None
    name: str = "scripted"

    async def run(
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Answer."""
        if options.allowance is None:
            return await self._answer(message, options)
        used = self.usage
        price = TokenPrice(0.0, (used.cost_usd or 0.0) / used.output_tokens)
        bound = CallBound(options.model or "", used.input_tokens, used.output_tokens, used.output_tokens, price)
        try:
            reservation = await options.allowance.reserve(bound)
        except EngineFailure as refused:
            return EngineResult("", "error", error=EngineError.of(refused))
        result = await self._answer(message, options)
        await reservation.settle(result.usage.tokens)
        return result

    async def _answer(self, message: str | tuple[JsonObject, ...], options: EngineOptions) -> EngineResult:
        model = options.model or ""
        user = message if isinstance(message, str) else text_of(message)
        count = sum(call.model == model for call in self.calls)
        self.calls.append(Asked(model, options.system_prompt or "", user, options.max_tokens or 0))
        if self.before is not None:
            await self.before()
        planned = self.answers.get(model, proposal())
        if callable(planned):
            planned = planned(self.calls[-1])
        answer = planned if isinstance(planned, str | EngineError) else planned[min(count, len(planned) - 1)]
        used = EngineUsage(tokens=self.usage, turns=1)
        if isinstance(answer, EngineError):
            return EngineResult("", "error", EngineUsage(turns=1), model=model, error=answer)
        return EngineResult(answer, "end_turn", used, model=model, provider="scripted")

    async def close(self) -> None:
        """Release nothing."""


class OrderDesk:
    """A fleet on the test's loop that executes orders."""

    def __init__(self, database: Database, redis: Redis, settings: Settings) -> None:
        self.settings = with_master_key(settings)
        self.harness = Harness(database, redis, self.settings)
        self.engine = AnsweringEngine({})
        self.harness.engines["scripted"] = self.engine
        self.database = database
        self.keys = keys = OrderKeys(Vault.of(self.settings.secrets.source))
        work = self.harness.work
        self.orders = Orders(work, keys)
        self.reviews = OrderReviews(work, keys)
        self.ticker = OrderTicker(work, keys)
        self.tenant_id = self.harness.tenant_id

    def order(self, inputs: Mapping[str, Any] | None = None, **fields: Any) -> AiWorkOrderV1:
        """Return an order."""
        return build_order(
            SECRET,
            tenant=self.tenant_id,
            scope="tests",
            policy_id="test_policy",
            inputs=inputs or {"currentCopy": "An old headline"},
            trace=EngineTrace(job_id="job-1"),
            **fields,
        )

    async def accept(self, order: AiWorkOrderV1, policy: PolicyDocument) -> AcceptedOrder:
        """Accept an order."""
        return await self.orders.accept(order, policy, tenant_id=self.tenant_id, traceparent=None)

    async def run(self, policy: PolicyDocument, order: AiWorkOrderV1 | None = None, *workers: Worker) -> AiWorkResultV1:
        """Accept an order, execute it, and return its result."""
        accepted = await self.accept(order or self.order(), policy)
        await self.settle(*workers)
        return await self.result(accepted.trace_id)

    async def settle(self, *workers: Worker) -> None:
        """Answer doorbells until none is left."""
        await self.harness.settle(*(workers or (self.harness.worker(),)))

    async def result(self, trace_id: str, **how: Any) -> AiWorkResultV1:
        """Return the result of an order."""
        return await self.orders.result_of(self.tenant_id, trace_id, **how)

    async def row(self, trace_id: str) -> OrderRow:
        """Return an order."""
        async with self.database.connection() as connection:
            return await get_order(connection, self.tenant_id, trace_id)

    async def parts(self, trace_id: str) -> list[PartRow]:
        """Return the parts of an order."""
        async with self.database.connection() as connection:
            return await list_parts(connection, trace_id)
