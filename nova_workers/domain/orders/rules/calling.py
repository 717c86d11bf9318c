"""The model calls of one part, each reserved before it is made, and the check of the answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from nova_workers.base.errors import Outage, RunLost
from nova_workers.base.json_schemas import InvalidSchema, JsonSchema, json_in
from nova_workers.base.vocabulary import OutageReason, WorkStopReason
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import Message, storable_json, text_block
from nova_workers.contracts.engine import Engine, EngineOptions, EngineResult, TurnListener
from nova_workers.contracts.orders import ModelChoice, canonical_json
from nova_workers.contracts.ports import ModelPrices
from nova_workers.contracts.usage import Allowance, TokenPrice, TokenUsage, most_tokens
from nova_workers.domain.orders.rules.prompts import PartPrompt
from nova_workers.domain.orders.sql.parts import BegunPart, Grant, Spent, reserve_call
from nova_workers.ledger.database import Database
from nova_workers.ledger.persist import persist

_TRIES: Final = 2
"""The first answer, and one correction."""
_OVERHEAD_TOKENS: Final = 100
_MAX_PROBLEM_CHARS: Final = 1_000
_NO_MODEL: Final = "The fleet has no model of this role with a known price that the tenant's ceilings permit."
_MAX_DEPTH: Final = 64
"""Of an answer's nesting, as of a request's."""
_OTHER_MODEL_HELPS: Final = ("provider_failed", "rate_limited")
_FAILURES: Final[Mapping[str, WorkStopReason]] = {
    "rate_limit": "rate_limited",
    "budget_exceeded": "cost_cap_exceeded",
}
"""Stop reasons of engine errors, by kind; for all others the provider failed."""


@dataclass(frozen=True, slots=True)
class Answer:
    """How the calls of a part ended.

    Attributes:
        value: With ``ok``: the answer.
        spent: What the part used; None if that is not known, as an engine raised an error in the last call.
        failure: What the provider or the check reported. It may quote content.
        aborted: The turn was stopped from outside.
        outage: Without a value: a provider of these models cannot be used now, so the part can wait for it.
    """

    stop_reason: WorkStopReason
    value: dict[str, Any] | None = None
    spent: Spent | None = None
    choice: ModelChoice | None = None
    model: str | None = None
    failure: str = ""
    aborted: bool = False
    outage: Outage | None = None


class PartCaller:
    """Calls models for parts. One object serves all worker slots of a process."""

    def __init__(self, database: Database, engines: Mapping[str, Engine], prices: ModelPrices) -> None:
        self._database = database
        self._engines = engines
        self._prices = prices

    async def answer(
        self,
        part: BegunPart,
        prompt: PartPrompt,
        choices: Sequence[ModelChoice],
        *,
        max_tokens: int,
        run_id: str,
        abort: AbortSignal,
        allowance: Allowance | None = None,
    ) -> Answer:
        """Return the answer of the first model that gives one.

        Without any, a part whose models include one that only cannot be used now may wait: see `Answer.outage`.

        Raises:
            RunLost: Another worker has begun the part, or the lease was lost.
        """
        try:
            schema = JsonSchema(prompt.schema)
        except InvalidSchema as error:
            # No answer could be accepted, so none is paid for.
            spent = Spent(TokenUsage(**part.usage), TokenUsage())
            problem = f"The schema of the answer is not accepted: {error.why}"[:_MAX_PROBLEM_CHARS]
            return Answer("ajv_failed", spent=spent, failure=problem)
        call = _PartCall(self._database, part, prompt, schema, max_tokens, run_id, abort, allowance)
        answer = call.ended("router_failed", failure=_NO_MODEL)
        outages: list[Outage] = []
        for choice in choices:
            engine = self._engines.get(choice.engine)
            price = self._prices.per_token(choice.engine, choice.model)
            if engine is None or price is None:
                continue
            answer = await call.ask(engine, choice, price)
            if answer.aborted or answer.stop_reason not in _OTHER_MODEL_HELPS:
                return answer
            outages += [] if answer.outage is None else [answer.outage]
        # Of several, the one that is over first.
        return replace(answer, outage=min(outages, key=lambda each: each.retry_after_s or 0.0, default=None))


class _PartCall:
    """The calls of one attempt, and what they have used."""

    def __init__(  # noqa: PLR0917 - the parts of one attempt
        self,
        database: Database,
        part: BegunPart,
        prompt: PartPrompt,
        schema: JsonSchema,
        max_tokens: int,
        run_id: str,
        abort: AbortSignal,
        allowance: Allowance | None,
    ) -> None:
        self._database = database
        self._part = part
        self._prompt = prompt
        self._schema = schema
        self._max_tokens = max_tokens
        self._run_id = run_id
        self._abort = abort
        self._allowance = allowance
        self._calls = part.calls
        self._usage = TokenUsage(**part.usage)
        self._last_call = TokenUsage()

    async def ask(self, engine: Engine, choice: ModelChoice, price: TokenPrice) -> Answer:
        """Return the answer of one model, corrected once if it does not fulfil the schema. Raises `RunLost`."""
        history: tuple[Message, ...] = ()
        message = self._prompt.user
        answer = Answer("json_parse_failed")
        for _ in range(_TRIES):
            grant = await self._reserve(history, message, price)
            if grant.refused is not None:
                reason = grant.refused
                if reason == "round_cap_exceeded" and self._part.outage is not None and not history:
                    # It waited for its provider until the order's time was over.
                    reason = reason_of_outage(self._part.outage)
                return self.ended(reason, choice, failure="The order cannot afford the call.")
            result = await engine.run(
                message, self._options(choice, history, grant), "sandbox", callbacks=TurnListener(), abort=self._abort
            )
            self._count(result, price)
            if result.stop_reason == "aborted":
                return replace(self.ended("needs_human", choice, result), aborted=True)
            failed = _failure(result)
            if failed is not None:
                outage = None if result.error is None else result.error.outage
                return replace(self.ended(failed[0], choice, result, failure=failed[1]), outage=outage)
            value, reason, problem = await _read(result.text, self._schema)
            answer = replace(self.ended(reason, choice, result, failure=problem), value=value)
            if value is not None:
                return answer
            history = (
                *history,
                Message("user", (text_block(message),)),
                Message("assistant", (text_block(result.text or "-"),)),
            )
            message = (
                f"Your answer does not fulfil the schema that it must have: {problem}\n"
                "Answer again, with nothing but JSON that fulfils the schema."
            )
        return answer

    async def _reserve(self, history: Sequence[Message], message: str, price: TokenPrice) -> Grant:
        prompt = self._prompt
        sent = [prompt.system, message, orjson.dumps(prompt.schema).decode()]
        sent += [str(block.get("text", "")) for past in history for block in past.content]
        input_tokens = sum(map(most_tokens, sent)) + _OVERHEAD_TOKENS
        grant = await persist(
            self._database,
            self._abort,
            lambda connection: reserve_call(
                connection,
                self._part,
                call=self._calls + 1,
                spent=Spent(self._usage, self._last_call),
                wanted_tokens=self._max_tokens,
                input_tokens=input_tokens,
                input_usd=input_tokens * price.input_usd,
                usd_per_output_token=price.output_usd,
            ),
            transaction=True,
        )
        if not grant.held:
            raise RunLost(f"Part {self._part.id!r} was begun again by another worker.", part_id=self._part.id)
        self._last_call = TokenUsage()
        if grant.refused is None:
            self._calls += 1
        return grant

    def _options(self, choice: ModelChoice, history: tuple[Message, ...], grant: Grant) -> EngineOptions:
        return EngineOptions(
            system_prompt=self._prompt.system or None,
            model=choice.model,
            # One call: a correction is a call of its own, which has to be reserved.
            max_turns=1,
            max_tokens=grant.max_tokens,
            timeout_s=grant.left_s,
            native_tools=(),
            output_schema=self._prompt.schema,
            history=history,
            allowance=self._allowance,
            conversation=self._run_id,
            run_id=self._run_id,
        )

    def _count(self, result: EngineResult, price: TokenPrice) -> None:
        used = result.usage.tokens
        if used.cost_usd is None:
            read = used.total_tokens - used.output_tokens
            used = replace(used, cost_usd=read * price.input_usd + used.output_tokens * price.output_usd)
        self._usage, self._last_call = self._usage + used, used

    def ended(
        self,
        reason: WorkStopReason,
        choice: ModelChoice | None = None,
        result: EngineResult | None = None,
        *,
        failure: str = "",
    ) -> Answer:
        """Return how the calls ended, without a value."""
        model = None if choice is None else choice.model
        if result is not None and result.model is not None:
            model = result.model
        return Answer(reason, None, Spent(self._usage, self._last_call), choice, model, failure)


def reason_of_outage(outage: OutageReason) -> WorkStopReason:
    """Return the stop reason of a part that waited for its model provider until its time was over."""
    return "rate_limited" if outage == "rate_limit" else "provider_failed"


def _failure(result: EngineResult) -> tuple[WorkStopReason, str] | None:
    """Return why a call gave no answer; None if it gave one, valid or not."""
    if result.limit == "time" or result.stop_reason == "timeout":
        return "round_cap_exceeded", "The time of the order is over."
    error = result.error
    if error is not None:
        return _FAILURES.get(error.kind, "provider_failed"), f"{error.kind}: {error.message}"
    return None


async def _read(text: str, schema: JsonSchema) -> tuple[dict[str, Any] | None, WorkStopReason, str]:
    """Return the value of an answer, or else the stop reason and what is wrong with it."""
    try:
        values = json_in(text)
    except orjson.JSONDecodeError as error:
        return None, "json_parse_failed", f"it is no JSON ({error})"
    read = [await _check(value, schema) for value in values]
    return next((each for each in read if each[0] is not None), read[0])


async def _check(value: Any, schema: JsonSchema) -> tuple[dict[str, Any] | None, WorkStopReason, str]:
    if storable_json(value, max_depth=_MAX_DEPTH) != value:
        return None, "ajv_failed", f"it nests deeper than {_MAX_DEPTH} levels, or a text contains U+0000"
    for problem in await schema.problems(value):
        return None, "ajv_failed", f"at {problem.place}: {problem.message}"[:_MAX_PROBLEM_CHARS]
    try:
        canonical_json(value)
    except ValueError:
        return None, "ajv_failed", "a number is too large"
    if not isinstance(value, dict):
        return None, "ajv_failed", "it is not an object"
    return value, "ok", ""
