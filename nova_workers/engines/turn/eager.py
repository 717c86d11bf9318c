"""Starts calls of tools that only read while the response that makes them still streams.

The journal's promise holds. What it protects from being done twice, or done without a record, is an effect, and a tool
that only reads has none; every other call waits until it is committed. Nothing of an eager call is told or committed
before its response is, and a response that fails takes its eager calls with it.
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
    """A call that began before its response was whole.

    Attributes:
        verdict: Whether it was allowed; `outcome` goes on only if it was.
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
        """Start the call that a whole block makes, if its tool only reads."""
        call_id, name = block.get("id"), block.get("name")
        given: Any = block.get("input")
        if not isinstance(call_id, str) or not isinstance(name, str) or input_problem(given) is not None:
            return
        if call_id in self._started or not self._reads_only(name):
            return
        call = ToolCall(call_id, name, given, step=self._step, sequence=0, status="running")
        verdict = asyncio.create_task(self._judge(call), name=f"authorize-{name}")
        outcome = asyncio.create_task(self._run(call, verdict), name=f"eager-{name}")
        self._started[call.id] = Started(given, datetime.now(UTC), verdict, outcome)

    def started(self, call: ToolCall) -> Started | None:
        """Return what was started for a call."""
        started = self._started.get(call.id)
        # A response that was begun anew may use an id again, for something else.
        return started if started is not None and started.params == call.params else None

    async def drop(self) -> None:
        """End what still runs."""
        tasks: list[asyncio.Task[Any]] = [
            task for started in self._started.values() for task in (started.verdict, started.outcome)
        ]
        self._started.clear()
        for task in tasks:
            task.cancel()
        # What they raise was either taken by whom it concerns, or concerns nobody any more.
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _judge(self, call: ToolCall) -> ToolAuthorization:
        return await self._authorize(call.tool_name, call.params)

    async def _run(self, call: ToolCall, verdict: asyncio.Task[ToolAuthorization]) -> ToolOutcome:
        if not (await verdict).allowed:
            return ToolOutcome((), failed=True)
        return await self._perform(call)
