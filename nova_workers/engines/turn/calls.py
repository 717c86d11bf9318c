"""Runs the tool calls of a step concurrently; those of read-only tools start while the response still streams.

The turn's own task reports results one by one as they arrive. So each is committed before the step ends, an abort never
interrupts a commit, and the tools' tasks raise nothing but cancellation.

The journal prevents effects that are repeated or not recorded. A read-only tool has no effects, so its calls may start
early; every other call waits until it is committed. Nothing of an eager call is reported or committed before its
response is, and if a response fails, its eager calls are canceled.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any

import structlog

from nova_workers.base.errors import ToolFailure
from nova_workers.base.media import with_scaled_images
from nova_workers.contracts.content import ContentBlock, JsonObject, text_block
from nova_workers.contracts.engine import EngineEvent, ToolAuthorization, ToolCall, TurnListener
from nova_workers.contracts.steps import INTERRUPTED, not_permitted
from nova_workers.contracts.summaries import tool_result_summary, tool_use_summary
from nova_workers.engines.turn.intake import input_problem
from nova_workers.engines.turn.interruption import Interruption, TurnStopped
from nova_workers.engines.turn.output import within_bounds
from nova_workers.engines.turn.seam import ToolOutcome, Tools
from nova_workers.engines.turn.spans import ToolSpan, tool_span
from nova_workers.engines.turn.step import OpenStep, ended, interrupted

_log = structlog.get_logger(__name__)

_CANNOT_WAIT = (
    "This call waits for an answer from outside, and a subagent cannot wait. Say in your answer what has to be asked; "
    "the agent that called you can ask it."
)

_Runs = dict[asyncio.Task[ToolOutcome], int]
"""For each task, the position in the step of the call that it runs."""


@dataclass(frozen=True, slots=True)
class _Started:
    """A call that began before its response was complete.

    Attributes:
        verdict: Whether it is allowed; `outcome` runs the call only if it is.
    """

    params: JsonObject
    at: datetime
    verdict: asyncio.Task[ToolAuthorization]
    outcome: asyncio.Task[ToolOutcome]


class _EagerCalls:
    """The eager calls of one response."""

    def __init__(
        self,
        reads_only: Callable[[str], bool],
        authorize: Callable[[str, JsonObject], Awaitable[ToolAuthorization]],
        perform: Callable[[ToolCall], Awaitable[ToolOutcome]],
        step: int,
    ) -> None:
        self._reads_only = reads_only
        self._authorize = authorize
        self._perform = perform
        self._step = step
        self._started: dict[str, _Started] = {}

    def begin(self, block: ContentBlock) -> None:
        """Start the call of a complete block, if its tool is read-only."""
        call_id, name = block.get("id"), block.get("name")
        given: Any = block.get("input")
        if not isinstance(call_id, str) or not isinstance(name, str) or input_problem(given) is not None:
            return
        if call_id in self._started or not self._reads_only(name):
            return
        call = ToolCall(call_id, name, given, step=self._step, sequence=0, status="running")
        verdict = asyncio.create_task(self._authorize_call(call), name=f"authorize-{name}")
        outcome = asyncio.create_task(self._run(call, verdict), name=f"eager-{name}")
        self._started[call.id] = _Started(given, datetime.now(UTC), verdict, outcome)

    def started(self, call: ToolCall) -> _Started | None:
        """Return the started call, if there is one."""
        started = self._started.get(call.id)
        # After a restart, a response may use the same id for another call.
        return started if started is not None and started.params == call.params else None

    async def drop(self) -> None:
        """Cancel the calls that still run."""
        tasks: list[asyncio.Task[Any]] = [
            task for started in self._started.values() for task in (started.verdict, started.outcome)
        ]
        self._started.clear()
        for task in tasks:
            task.cancel()
        # Their exceptions were either handled already or are no longer relevant.
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _authorize_call(self, call: ToolCall) -> ToolAuthorization:
        return await self._authorize(call.tool_name, call.params)

    async def _run(self, call: ToolCall, verdict: asyncio.Task[ToolAuthorization]) -> ToolOutcome:
        if not (await verdict).allowed:
            return ToolOutcome((), failed=True)
        return await self._perform(call)


class CallRunner:
    """Runs the calls of a turn's steps, under the caller's authorization."""

    def __init__(
        self,
        tools: Tools,
        listener: TurnListener,
        interruption: Interruption,
        *,
        timeout_s: float,
        max_output_chars: int,
        reads_only: Callable[[str], bool] | None,
        has_begun: Callable[[str], bool],
        defers: bool,
    ) -> None:
        self._tools = tools
        self._listener = listener
        self._interruption = interruption
        self._timeout_s = timeout_s
        self._max_output_chars = max_output_chars
        self._reads_only = reads_only
        self._has_begun = has_begun
        self._defers = defers
        self._eager: _EagerCalls | None = None

    def eager(self, step: int) -> _EagerCalls | None:
        """Return the starter for calls of a response that still streams; None if calls must wait for the response."""
        if self._reads_only is not None:
            self._eager = _EagerCalls(self._reads_only, self._authorize, self._perform, step)
        return self._eager

    async def drop_eager(self) -> None:
        """Cancel eager calls that still run, because their response failed or the turn was stopped."""
        if self._eager is not None:
            eager, self._eager = self._eager, None
            await eager.drop()

    async def interrupt_in_flight(self, step: OpenStep) -> None:
        """Report as interrupted each call that a crashed worker may have begun, unless it may be run again."""
        for at, call in step.unfinished():
            if call.id in step.approved or call.id in step.unasked:
                continue
            with self._interruption.section():
                again = call.idempotent or await self._tools.is_idempotent(call.tool_name)
            if not again:
                await self._settle(step, at, interrupted(call, INTERRUPTED))

    async def authorize(self, step: OpenStep) -> None:
        """Ask whether the calls of `step` may begin; those that may not are refused or deferred in `step`.

        Before the step is committed: so the journal has the refusals, and never a call that waits for permission as one
        that may have begun. Raises `RunLost` if the listener does.
        """
        for at, call in step.to_begin():
            if call.id in step.approved:
                continue
            verdict = await self._verdict(call)
            if verdict.allowed:
                continue
            if verdict.result is not None:
                step.supply(at, within_bounds(ToolOutcome(verdict.result, verdict.is_error), self._max_output_chars))
            elif verdict.deferral is not None and self._defers:
                step.defer(at, verdict.deferral, for_permission=True)
            else:
                step.refuse(at, not_permitted(verdict.reason))

    async def run(self, step: OpenStep, results: Mapping[str, ToolOutcome] = MappingProxyType({})) -> None:
        """Run every call of `step` that may begin, and record its result or deferral in `step`.

        Args:
            step: Committed, unless there are results.
            results: Outcomes of calls that have been made already, by their ids.

        Raises:
            TurnStopped: The turn must stop. Calls that ended in time have their results.
            EngineFailure: A call can have no result, after all others have ended.
            RunLost: A callback raised it.
        """
        for at in step.refused:
            await self._settle(step, at, step.calls[at])
        for at, call in tuple(step.to_begin()):
            if (outcome := results.get(call.id)) is not None:
                outcome = within_bounds(outcome, self._max_output_chars)
                await self._settle(step, at, ended(self._begin(step, at, call), outcome))
        to_begin = tuple(step.to_begin())
        if not to_begin:
            return
        runs: _Runs = {}
        try:
            async with asyncio.TaskGroup() as group:
                for at, call in to_begin:
                    started = self._started(call)
                    if started is None:
                        await self._listener.confirm_run()
                    self._interruption.check()
                    begun = self._begin(step, at, call)
                    runs[started.outcome if started else group.create_task(self._perform(begun))] = at
                await self._collect(step, runs)
        except BaseExceptionGroup as failures:
            # The tasks do not raise: the group holds the body's exception.
            failure = failures.exceptions[0]
            if isinstance(failure, TurnStopped):
                self._keep_known(step, runs)
            raise failure from None

    async def _verdict(self, call: ToolCall) -> ToolAuthorization:
        started = self._started(call)
        if started is not None:
            return await started.verdict
        return await self._authorize(call.tool_name, call.params)

    async def _authorize(self, tool_name: str, params: JsonObject) -> ToolAuthorization:
        verdict = await self._listener.authorize_tool(tool_name, params)
        reads_only = self._reads_only is not None and self._reads_only(tool_name)
        return replace(verdict, allowed=True) if verdict.if_read_only and reads_only else verdict

    def _started(self, call: ToolCall) -> _Started | None:
        return None if self._eager is None else self._eager.started(call)

    def _begin(self, step: OpenStep, at: int, call: ToolCall) -> ToolCall:
        started = self._started(call)
        started_at = call.started_at or (datetime.now(UTC) if started is None else started.at)
        begun = replace(call, status="running", started_at=started_at)
        step.calls[at] = begun
        self._listener.on_tool_use(begun, tool_use_summary(begun.tool_name, begun.params))
        self._listener.on_event(EngineEvent("tool_use", {"name": begun.tool_name, "input": begun.params}))
        return begun

    async def _perform(self, call: ToolCall) -> ToolOutcome:
        with tool_span(call) as span:
            outcome = await self._outcome(call, span)
            if outcome.content:
                outcome = replace(outcome, content=await with_scaled_images(outcome.content))
            outcome = within_bounds(outcome, self._max_output_chars)
            span.end(outcome)
            return outcome

    async def _outcome(self, call: ToolCall, span: ToolSpan) -> ToolOutcome:
        limit = asyncio.timeout(self._timeout_s)
        try:
            async with limit:
                return await self._tools.call(call)
        except ToolFailure as failure:
            return ToolOutcome((text_block(failure.message),), failed=True)
        except TimeoutError as error:
            span.fail("timeout")
            problem = f"{call.tool_name} failed: {error or 'something in it timed out'}"
            if limit.expired():
                problem = (
                    f"{call.tool_name} was stopped after {self._timeout_s:g} s. Whether it had an effect is not known."
                )
            return ToolOutcome((text_block(problem),), failed=True)
        except BaseException as error:
            if _ends_task(error):
                raise
            # A tool is foreign code: whatever it raises, the turn continues and the model gets the error.
            _log.exception("tool_crashed", tool=call.tool_name, tool_call_id=call.id)
            span.fail(type(error).__qualname__)
            problem = f"{call.tool_name} failed: {type(error).__name__}: {error}"
            return ToolOutcome((text_block(problem),), failed=True)

    async def _collect(self, step: OpenStep, runs: _Runs) -> None:
        pending, failure = set(runs), None
        while pending:
            with self._interruption.section():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
            for task in sorted(done, key=runs.__getitem__):
                at, outcome = runs[task], task.result()
                if outcome.failure is not None:
                    failure = failure or outcome.failure
                elif outcome.deferral is not None and self._defers:
                    step.defer(at, outcome.deferral)
                else:
                    await self._settle(step, at, ended(step.calls[at], without_deferral(outcome)))
        if failure is not None:
            raise failure

    async def _settle(self, step: OpenStep, at: int, call: ToolCall) -> None:
        step.calls[at] = call
        summary = tool_result_summary(call)
        await self._listener.on_tool_result(call, summary)
        self._listener.on_tool_use_summary(summary)

    def _keep_known(self, step: OpenStep, runs: _Runs) -> None:
        """Keep the results of calls that ended while the turn was being stopped, and which calls did not begin."""
        for task, at in runs.items():
            call = step.calls[at]
            if call.result is not None:
                continue
            if task.done() and not task.cancelled():
                outcome = task.result()
                if outcome.deferral is None and outcome.failure is None:
                    step.calls[at] = ended(call, outcome)
            elif not self._has_begun(call.id):
                step.calls[at] = replace(call, status="pending", started_at=None)


def _ends_task(error: BaseException) -> bool:
    """Return whether the task of a call itself ends. A cancellation for which nothing asked it is the tool's error."""
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is None or task.cancelling() > 0
    return isinstance(error, GeneratorExit | KeyboardInterrupt | TurnStopped)


def without_deferral(outcome: ToolOutcome) -> ToolOutcome:
    """Return the outcome where deferral is impossible: a deferral becomes an error."""
    return outcome if outcome.deferral is None else ToolOutcome((text_block(_CANNOT_WAIT),), failed=True)
