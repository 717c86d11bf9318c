"""The engine that executes the parts of work orders.

It wraps the fleet's other engines: it decrypts the part's content, reserves each model call, calls the engine of the
policy's model, checks the answer and stores it encrypted. What it returns to the run is a fingerprint and figures, so
nothing of the content reaches the ledger's messages, live events, logs or spans.

The transaction that stores the answer also moves the order on. A run that is executed again after a crash finds the
stored answer, and returns at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import structlog

from nova_workers.base.errors import EngineErrorKind, EngineFailure, NovaError, Outage, RunLost, Unstorable
from nova_workers.base.observability.redaction import frames_of, sealing
from nova_workers.base.observability.tracing import without_content
from nova_workers.base.vocabulary import WorkStopReason
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import (
    Engine,
    EngineError,
    EngineOptions,
    EngineResult,
    EngineUsage,
    StepRecord,
    StopReason,
    TrustLevel,
    TurnListener,
)
from nova_workers.contracts.ports import ModelPrices
from nova_workers.contracts.usage import TokenUsage
from nova_workers.contracts.waits import detail_of
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.orders.rules.advance import ENGINE, advance
from nova_workers.domain.orders.rules.calling import Answer, PartCaller
from nova_workers.domain.orders.rules.content import open_content, open_outputs
from nova_workers.domain.orders.rules.policies.choosing import models_of
from nova_workers.domain.orders.rules.prompts import prompt_of, role_named
from nova_workers.domain.orders.rules.sealing import OrderKeys, OrderSeal
from nova_workers.domain.orders.rules.trail import record
from nova_workers.domain.orders.sql.ends import TrailEntry
from nova_workers.domain.orders.sql.parts import BegunPart, PartEnd, begin_part, end_part, settle_call, stored_part
from nova_workers.domain.orders.sql.records import PartRow, list_parts, lock_order
from nova_workers.ledger.database import Connection
from nova_workers.ledger.persist import persist, persist_work
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)


class WorkOrderEngine:
    """Implements `nova_workers.contracts.engine.Engine`."""

    name = ENGINE

    def __init__(
        self,
        work: Work,
        keys: OrderKeys,
        engines: Mapping[str, Engine],
        prices: ModelPrices,
        *,
        rules: CeilingRules,
    ) -> None:
        """Store the parts.

        Args:
            work: Begins units of work.
            keys: Opens the keys of orders.
            engines: What calls models, by name.
            prices: Of models: without a price, no cost can be reserved.
            rules: Checks engines against the ceilings of tenants.
        """
        self._database = work.database
        self._work = work
        self._keys = keys
        self._caller = PartCaller(work.database, engines, prices)
        self._rules = rules

    async def run(  # noqa: PLR0917 - the contract's signature
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Execute the part of a run. See `nova_workers.contracts.engine.Engine.run`."""
        try:
            return await self._execute(options, callbacks or TurnListener(), abort or AbortSignal())
        except Exception as error:
            if isinstance(error, NovaError) and not isinstance(error, Unstorable):
                raise
            # A defect. The runner would log the message, and the database's quotes values: both may be content.
            _log.error("order.part_not_stored", error_type=type(error).__name__, frames=frames_of(error))
            why = f"{type(error).__name__} while storing the part of a work order; see the log."
            raise EngineFailure(why, kind="unknown", retryable=False) from None

    async def close(self) -> None:
        """Do nothing: the owner of the other engines closes them."""

    async def _execute(self, options: EngineOptions, listener: TurnListener, signal: AbortSignal) -> EngineResult:
        run_id = options.run_id or ""
        part = await persist(self._database, signal, lambda c: begin_part(c, run_id))
        if part is None:
            stored = await persist(self._database, signal, lambda c: stored_part(c, run_id))
            return await _reported(stored, listener)
        seal = self._keys.open(part.tenant_id, part.order_id, part.data_key_id, part.data_key)
        answer = await self._answer(part, seal, options, signal)
        if answer.aborted or answer.outage is not None:
            # The part goes on in another attempt.
            await persist(self._database, signal, lambda c: _settle(c, part, answer))
            error = None if answer.aborted or answer.outage is None else _held(answer.stop_reason, answer.outage)
            stop_reason: StopReason = "aborted" if error is None else "error"
            return EngineResult("", stop_reason, EngineUsage(turns=1), model=answer.model, error=error)
        end = _end_of(answer, part, seal)
        await persist_work(self._work, signal, lambda tx: self._store(tx, part, end, answer))
        stored = await persist(self._database, signal, lambda c: stored_part(c, run_id))
        return await _reported(stored, listener)

    async def _answer(self, part: BegunPart, seal: OrderSeal, options: EngineOptions, abort: AbortSignal) -> Answer:
        """Call the part's models. Within, log lines have fingerprints in place of texts, and spans no content."""
        with sealing(seal.fingerprint), without_content():
            try:
                assert part.sealed is not None  # noqa: S101 - it is destroyed only together with the key
                content = open_content(seal, part.sealed)
                is_first = part.kind == "craft" and part.round == 1
                rows = [] if is_first else await persist(self._database, abort, lambda c: list_parts(c, part.order_id))
                role = role_named(content, part.role)
                outputs = open_outputs(seal, rows)
                prompt = prompt_of(content, role, seal.canary, kind=role.kind, round=part.round, outputs=outputs)
                choices = models_of(content.order, content.policy, role)
                return await self._caller.answer(
                    part,
                    prompt,
                    [choice for choice in choices if self._rules.permits_engine(part.ceilings, choice.engine)],
                    max_tokens=role.max_output_tokens,
                    run_id=options.run_id or "",
                    abort=abort,
                    allowance=options.allowance,
                )
            except RunLost:
                raise
            except NovaError as error:
                return Answer("provider_failed", failure=f"{error.code}: {error.message}")
            except Exception as error:
                # A defect of an engine. Its message may quote content, so it is not passed on as an exception.
                _log.exception("order.part_raised", error_type=type(error).__name__)
                return Answer("provider_failed", failure=repr(error))

    async def _store(self, tx: UnitOfWork, part: BegunPart, end: PartEnd, answer: Answer) -> None:
        connection = tx.connection
        row = await lock_order(connection, part.order_id)
        if row is None or not await end_part(connection, part.id, end, attempt=part.attempts):
            if await stored_part(connection, part.run_id) is None:
                raise RunLost(f"Part {part.id!r} was begun again by another worker.", part_id=part.id)
            # The order has ended meanwhile, or this attempt stored it and only the reply was lost.
            await _settle(connection, part, answer)
            return
        await record(connection, row, [TrailEntry("internal", "part_ended", _figures(part, end))])
        await advance(tx, row, self._keys)


def _end_of(answer: Answer, part: BegunPart, seal: OrderSeal) -> PartEnd:
    value, choice = answer.value, answer.choice
    confidence = None if value is None else value.get("confidence")
    is_number = isinstance(confidence, int | float) and 0 <= confidence <= 1
    content = None if value is None else orjson.dumps(value)
    return PartEnd(
        answer.stop_reason,
        answer.spent,
        sealed_output=None if content is None else seal.seal(part.id, content),
        fingerprint=seal.fingerprint(answer.failure if content is None else content),
        confidence=float(confidence) if is_number and confidence is not None else None,
        approved=bool(value["approve"]) if value is not None and part.kind == "review" else None,
        engine=None if choice is None else choice.engine,
        model=answer.model,
        provider=None if choice is None else choice.provider,
    )


async def _settle(connection: Connection, part: BegunPart, answer: Answer) -> None:
    """Count the last call of an attempt whose part goes on without it, or has ended."""
    choice = answer.choice
    if answer.spent is not None and choice is not None:
        await settle_call(
            connection, part, answer.spent, engine=choice.engine, model=answer.model, provider=choice.provider
        )


def _figures(part: BegunPart, end: PartEnd) -> dict[str, Any]:
    usage = TokenUsage(**part.usage) if end.spent is None else end.spent.usage
    return {
        "part": part.id,
        "role": part.role,
        "round": part.round,
        "stopReason": end.stop_reason,
        "model": end.model,
        "provider": end.provider,
        "fingerprint": end.fingerprint,
        "attempt": part.attempts,
        "inputTokens": usage.total_tokens - usage.output_tokens,
        "outputTokens": usage.output_tokens,
        "costUsd": usage.cost_usd,
    }


async def _reported(part: PartRow | None, listener: TurnListener) -> EngineResult:
    """Report an ended part to its run: fingerprint, figures and stop reason."""
    if part is None:
        error = EngineError("unknown", "The run belongs to no part of a work order.", retryable=False)
        return EngineResult("", "error", error=error)
    text = f"{part.stop_reason}: {part.fingerprint or 'ended with its order'}"
    usage = TokenUsage(**part.usage)
    step = StepRecord(0, (Message("assistant", (text_block(text),)),), (), usage, part.model, final=True)
    await listener.on_step(step)
    used = _used(usage, part.calls)
    failed = part.stop_reason != "ok"
    why = (part.stop_reason or "unknown").replace("_", " ")
    error = EngineError("model_error", f"The part of the work order ended: {why}", retryable=False)
    return EngineResult(
        text,
        "error" if failed else "end_turn",
        used,
        messages=step.messages,
        model=part.model,
        provider=part.provider,
        error=error if failed else None,
    )


def _held(reason: WorkStopReason, outage: Outage) -> EngineError:
    """Return the error of a part that can wait. What the provider reported may quote content, so it is left out."""
    kind: EngineErrorKind = "rate_limit" if reason == "rate_limited" else "model_error"
    return EngineError(kind, f"{detail_of(outage, '').summary}.", retryable=True, outage=outage)


def _used(usage: TokenUsage, calls: int) -> EngineUsage:
    return EngineUsage(tokens=usage, turns=calls)
