"""Starts calls of read-only tools while the response that makes them still streams.

The journal prevents effects that are repeated or not recorded. A read-only tool has no effects, so its calls may start
early; every other call waits until it is committed. Nothing of an eager call is reported or committed before its
response is, and if a response fails, its eager calls are canceled.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from nova_workers.contracts.content import ContentBlock, JsonObject
from nova_workers.contracts.engine import ToolAuthorization, ToolCall
from nova_workers.engines.turn.intake import input_problem
from nova_workers.engines.turn.seam import ToolOutcome

__all__ = ["EagerCalls", "Started"]


@dataclass(frozen=True, slots=True)
class Started:
    """A call that began before its response was complete.

    Attributes:
        verdict: Whether it is allowed; `outcome` runs the call only if it is.
    """

    params: JsonObject
    at: datetime
    verdict: asyncio.Task[ToolAuthorization]
    outcome: asyncio.Task[ToolOutcome]


class EagerCalls:
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
        self._started: dict[str, Started] = {}

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
        self._started[call.id] = Started(given, datetime.now(UTC), verdict, outcome)

    def started(self, call: ToolCall) -> Started | None:
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
