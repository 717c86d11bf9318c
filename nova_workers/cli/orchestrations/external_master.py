"""The orchestration that a program outside of the fleet leads: opened at its first call, and called with retries."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from nova_workers.base.clock import spell_duration
from nova_workers.base.errors import NovaError, OrchestrationError, Unavailable
from nova_workers.base.ids import new_id
from nova_workers.client.resources.orchestrations import Orchestrations
from nova_workers.client.retry import Retry
from nova_workers.contracts.http.orchestrations import MasterCall, MasterReply, OrchestrationCreate, OrchestrationView
from nova_workers.contracts.orchestration import TASK_COMPLETE

_WAIT_FOR_MESSAGE = "wait_for_message"
_TIMEOUT = "timeout"


class ExternalMaster:
    """Leads one orchestration over the API."""

    def __init__(self, orchestrations: Orchestrations, wanted: OrchestrationCreate) -> None:
        self._orchestrations = orchestrations
        self._wanted = wanted
        self._opening = asyncio.Lock()
        self._start_key = new_id("evt")
        self._retry = Retry()
        self.orchestration_id: str | None = None
        """None until the first call."""

    async def take_up(self, orchestration_id: str) -> OrchestrationView:
        """Lead an orchestration that is open.

        Raises:
            NotFound: There is no such orchestration.
            OrchestrationError: It has ended, or its master is an agent of the fleet.
        """
        view = await self._orchestrations.get(orchestration_id)
        if not view.is_external:
            raise OrchestrationError(f"The master of {orchestration_id!r} is an agent of the fleet. Leave out the id.")
        if view.finished_at is not None:
            raise OrchestrationError(f"Orchestration {orchestration_id!r} is {view.state}. Leave out the id.")
        self.orchestration_id = view.id
        return view

    async def call(self, tool: str, arguments: dict[str, Any]) -> MasterReply:
        """Call a tool, and return its result. While agents have not answered, and if a connection breaks, it goes on.

        Raises:
            NovaError: The call is refused, or the API does not answer for too long.
        """
        orchestration_id = await self._open()
        key, began_s, failures = new_id("evt"), time.monotonic(), 0
        while True:
            call = MasterCall(tool=tool, arguments=_remaining(tool, arguments, time.monotonic() - began_s))
            try:
                reply = await self._orchestrations.master_call(orchestration_id, call, key=key)
            except Unavailable:
                failures += 1
                if failures > self._retry.attempts:
                    raise
                await asyncio.sleep(self._retry.delay_s(failures))
            else:
                if not reply.pending:
                    if tool == TASK_COMPLETE and not reply.failed:
                        self._begin_anew()
                    return reply
                failures = 0

    def _begin_anew(self) -> None:
        """Let the next call open another orchestration."""
        self.orchestration_id, self._start_key = None, new_id("evt")

    async def describe(self, waited_s: float) -> str:
        """Return the state of the agents, on one line, for a person who waits."""
        states = ""
        if self.orchestration_id is not None:
            with suppress(NovaError):
                view = await self._orchestrations.get(self.orchestration_id)
                states = ", ".join(f"{count} {state}" for state, count in sorted(view.agents.items()))
        return " · ".join(filter(None, (f"waits since {spell_duration(waited_s)}", states)))

    async def _open(self) -> str:
        async with self._opening:
            if self.orchestration_id is None:
                view = await self._orchestrations.start(self._wanted, idempotency_key=self._start_key)
                self.orchestration_id = view.id
            return self.orchestration_id


def _remaining(tool: str, arguments: dict[str, Any], waited_s: float) -> dict[str, Any]:
    """Return the arguments of a call that has waited for a while: what is left of its own timeout."""
    timeout_s = arguments.get(_TIMEOUT)
    if tool != _WAIT_FOR_MESSAGE or not isinstance(timeout_s, int | float) or timeout_s <= 0:
        return arguments
    return {**arguments, _TIMEOUT: max(timeout_s - waited_s, 0.001)}
