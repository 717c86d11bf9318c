"""Questions of a function to models of the fleet."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Final

from pydantic import ValidationError

from nova_workers.base.errors import EngineFailure, ToolFailure
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, Message, text_block
from nova_workers.contracts.engine import Engine, EngineError, EngineOptions, EngineResult, ToolCall, TurnListener
from nova_workers.contracts.user_agents import MAX_STEP_BYTES, ModelAnswer, ModelQuestion
from nova_workers.engines.code.entries import spoken
from nova_workers.engines.turn import Budget, ToolOutcome

_MOST_RESPONSES: Final = 4
"""A model without tools answers at once; one may correct an answer, and a provider may pause one."""
_STOP_S: Final = 5.0
"""The time of an engine to stop, so that what it used is known."""


class ModelCalls:
    """Asks models for a turn: each question is a turn of another engine, without tools, that is not journaled itself.

    Its usage counts against the budgets of the function's turn, and its text is shown as a subagent's.
    """

    def __init__(self, options: EngineOptions, listener: TurnListener, budget: Budget) -> None:
        self._options = options
        self._listener = listener
        self._budget = budget

    async def ask(self, call: ToolCall) -> ToolOutcome:
        """Return the answer to the question in a call, as JSON.

        The outcome is a failure of the turn if the provider cannot be used now, or a budget refuses the call: such a
        question can be asked again by a later attempt.

        Raises:
            ToolFailure: There is no answer, and the function gets to know why.
        """
        question = _question(call.params)
        engine = self._engine(question)
        result = await self._answered(engine, question, call)
        self._budget.spend_nested(result.usage.tokens)
        if result.error is not None:
            if result.error.outage is not None or result.error.kind == "budget_exceeded":
                return ToolOutcome((), failure=_failure(result.error))
            raise ToolFailure(f"{_label(question)} failed ({result.error.kind}): {result.error.message}")
        if result.stop_reason not in {"end_turn", "max_tokens"} or (
            question.output_schema is not None and result.stop_reason != "end_turn"
        ):
            why = result.limit or result.stop_reason
            raise ToolFailure(f"{_label(question)} failed: the answer stopped early ({why}).")
        answer = ModelAnswer(
            text=result.text,
            output=result.output,
            model=result.model,
            truncated=result.stop_reason == "max_tokens",
            usage=result.usage.tokens,
        ).model_dump_json()
        if len(answer.encode()) > MAX_STEP_BYTES:
            raise ToolFailure(f"{_label(question)} failed: the answer has more than {MAX_STEP_BYTES:,} bytes as JSON.")
        return ToolOutcome((text_block(answer),))

    def _engine(self, question: ModelQuestion) -> Engine:
        asked = self._options.asked_engines
        name = question.engine or (asked.default if asked is not None else "")
        engine = None if asked is None else asked.by_name.get(name)
        if engine is None:
            known = ", ".join(sorted(asked.by_name)) if asked is not None else ""
            raise ToolFailure(f"{_label(question)} failed: there is no engine {name!r}; there are: {known or 'none'}.")
        return engine

    async def _answered(self, engine: Engine, question: ModelQuestion, call: ToolCall) -> EngineResult:
        abort = AbortSignal()
        asking = asyncio.create_task(
            engine.run(
                question.prompt,
                self._options_of(question),
                "sandbox",
                callbacks=self._listener.subagent(call.id, question.name),
                abort=abort,
            ),
            name=f"model-{question.name}",
        )
        try:
            return await asyncio.shield(asking)
        except asyncio.CancelledError:
            await self._stop(asking, abort)
            raise

    async def _stop(self, asking: asyncio.Task[EngineResult], abort: AbortSignal) -> None:
        """Stop a question, and count what it used."""
        abort.abort("cancel")
        await asyncio.wait({asking}, timeout=_STOP_S)
        asking.cancel()
        with suppress(asyncio.CancelledError, Exception):
            self._budget.spend_nested((await asking).usage.tokens)

    def _options_of(self, question: ModelQuestion) -> EngineOptions:
        options = self._options
        return EngineOptions(
            cwd=options.cwd,
            enclosure=options.enclosure,
            native_tools=(),
            system_prompt=question.system,
            model=question.model or options.model,
            max_turns=_MOST_RESPONSES,
            max_tokens=question.max_tokens,
            temperature=question.temperature,
            thinking_budget_tokens=question.thinking_budget_tokens,
            history=_history(question, options),
            token_budget=options.token_budget,
            cost_budget_usd=options.cost_budget_usd,
            allowance=None if options.allowance is None else options.allowance.nested(),
            spent=self._budget.spent,
            reasoning_timeout_s=options.reasoning_timeout_s,
            output_schema=question.output_schema,
            fallback_models=options.fallback_models,
            conversation=options.conversation,
            run_id=options.run_id,
        )


def _question(given: JsonObject) -> ModelQuestion:
    try:
        return ModelQuestion.model_validate(given)
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors())
        raise ToolFailure(f"The model was not asked: {problems}.") from error


def _history(question: ModelQuestion, options: EngineOptions) -> tuple[Message, ...]:
    if isinstance(question.history, bool):
        return tuple(Message(each.role, each.content) for each in spoken(options.history)) if question.history else ()
    return tuple(Message(each.role, each.content) for each in question.history)


def _failure(error: EngineError) -> EngineFailure:
    return EngineFailure(
        error.message, kind=error.kind, retryable=error.retryable, outage=error.outage, budget=error.budget
    )


def _label(question: ModelQuestion) -> str:
    return f"The model {question.name!r}"
