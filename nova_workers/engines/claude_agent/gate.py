"""Synchronises the program's loop with ours.

The program runs its own loop. The run protocol requires it to wait at two points, which its hooks implement: before
each call, until the call is committed and authorized; and after a step's calls, until the step is committed. This
module is the first; the second is a frame of the conversation.
"""

import asyncio
from dataclasses import dataclass, field

from nova_workers.contracts.content import JsonObject
from nova_workers.engines.turn import ToolOutcome


@dataclass(slots=True)
class _Call:
    verdict: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: str | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    asked: JsonObject | None = None
    outcome: ToolOutcome | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    answer: ToolOutcome | None = None
    begun: bool = False


class CallGate:
    """The calls of the program's current step, by the model's id."""

    def __init__(self) -> None:
        self._calls: dict[str, _Call] = {}
        self._foreign: set[str] = set()

    def _call(self, call_id: str) -> _Call:
        return self._calls.setdefault(call_id, _Call())

    # The program's side.

    async def verdict(self, call_id: str) -> str | None:
        """Wait until the call may run (None) or is refused (the reason)."""
        call = self._call(call_id)
        await call.verdict.wait()
        call.begun = call.refusal is None
        return call.refusal

    def pass_by(self, call_id: str) -> None:
        """Record a call that a subagent makes, not the turn itself."""
        self._foreign.add(call_id)

    def is_ours(self, call_id: str) -> bool:
        """Return whether the turn itself makes the call and provides its result."""
        return call_id not in self._foreign

    async def ask(self, call_id: str, given: JsonObject) -> ToolOutcome:
        """Request that the turn runs a call of one of our tools, and wait for the outcome."""
        call = self._call(call_id)
        call.asked = given
        call.news.set()
        await call.answered.wait()
        assert call.answer is not None  # noqa: S101 - set before the event is
        return call.answer

    def settle(self, call_id: str, outcome: ToolOutcome) -> None:
        """Record the outcome of a call that the program reports."""
        call = self._call(call_id)
        if call.outcome is None:
            call.outcome = outcome
            call.news.set()

    # The turn's side.

    def let_through(self, call_id: str) -> None:
        """Allow the call to run."""
        self._call(call_id).verdict.set()

    def refuse(self, call_id: str, reason: str) -> None:
        """Refuse the call, unless it was allowed already."""
        call = self._call(call_id)
        if not call.verdict.is_set():
            call.refusal = reason
            call.verdict.set()

    def has_begun(self, call_id: str) -> bool:
        """Return whether the call may have begun. True for a call that did not go through the program.

        The program makes calls that change something one by one.
        """
        call = self._calls.get(call_id)
        return call is None or call.begun

    async def news(self, call_id: str) -> ToolOutcome | JsonObject:
        """Wait for the program: for the outcome of its own call, or for the arguments of a call of our tool."""
        call = self._call(call_id)
        await call.news.wait()
        if call.outcome is not None:
            return call.outcome
        assert call.asked is not None  # noqa: S101 - set before the event is
        return call.asked

    def answer(self, call_id: str, outcome: ToolOutcome) -> None:
        """Set the outcome of a call that the program requested."""
        call = self._call(call_id)
        if call.answer is None:
            call.answer = outcome
            call.answered.set()

    def begin_step(self) -> None:
        """Forget the previous step's calls, since a model may use an id again."""
        self._calls.clear()
