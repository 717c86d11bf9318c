"""Where the program's loop waits for ours.

The program runs its own loop; the run protocol needs it to stand still at two places, and its hooks make it: before
each call until the call is committed and authorized, and after a step's calls until the step is committed. This is the
first of them; the second is a frame of the conversation.
"""

import asyncio
from dataclasses import dataclass, field

from nova_workers.contracts.content import JsonObject
from nova_workers.engines.turn import ToolOutcome

__all__ = ["CallGate"]


@dataclass(slots=True)
class _Call:
    verdict: asyncio.Event = field(default_factory=asyncio.Event)
    refusal: str | None = None
    news: asyncio.Event = field(default_factory=asyncio.Event)
    asked: JsonObject | None = None
    outcome: ToolOutcome | None = None
    answered: asyncio.Event = field(default_factory=asyncio.Event)
    answer: ToolOutcome | None = None


class CallGate:
    """The calls of the step that the program is in, by the model's id."""

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
        return call.refusal

    def pass_by(self, call_id: str) -> None:
        """Note a call that is none of the turn's own: a subagent makes it."""
        self._foreign.add(call_id)

    def is_ours(self, call_id: str) -> bool:
        """Return whether the turn itself makes the call, and so will answer it."""
        return call_id not in self._foreign

    async def ask(self, call_id: str, given: JsonObject) -> ToolOutcome:
        """Ask for a call of one of our tools to be run, and wait for its outcome."""
        call = self._call(call_id)
        call.asked = given
        call.news.set()
        await call.answered.wait()
        assert call.answer is not None  # noqa: S101 - set before the event is
        return call.answer

    def settle(self, call_id: str, outcome: ToolOutcome) -> None:
        """Take what the program says came of a call."""
        call = self._call(call_id)
        if call.outcome is None:
            call.outcome = outcome
            call.news.set()

    # The turn's side.

    def let_through(self, call_id: str) -> None:
        """Let the call run."""
        self._call(call_id).verdict.set()

    def refuse(self, call_id: str, reason: str) -> None:
        """Refuse the call, if nobody let it through."""
        call = self._call(call_id)
        if not call.verdict.is_set():
            call.refusal = reason
            call.verdict.set()

    async def news(self, call_id: str) -> ToolOutcome | JsonObject:
        """Wait for what the program does with a call: its outcome, or what one of our tools is asked to do."""
        call = self._call(call_id)
        await call.news.wait()
        if call.outcome is not None:
            return call.outcome
        assert call.asked is not None  # noqa: S101 - set before the event is
        return call.asked

    def answer(self, call_id: str, outcome: ToolOutcome) -> None:
        """Answer what the program asked for."""
        call = self._call(call_id)
        if call.answer is None:
            call.answer = outcome
            call.answered.set()

    def begin_step(self) -> None:
        """Forget the calls of the step before: nothing says that a model never uses an id again."""
        self._calls.clear()
