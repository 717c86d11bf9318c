"""Where the program's loop waits for ours.

The program runs its own loop; the run protocol needs it to stand still at two places, and its hooks make it: before
each call until the call is committed and authorized, and after a step's calls until the step is committed.
"""

import asyncio
from collections import defaultdict

from nova_workers.engines.turn import ToolOutcome

__all__ = ["CallGate"]


def _verdicts() -> "defaultdict[str, asyncio.Future[str | None]]":
    return defaultdict(lambda: asyncio.get_running_loop().create_future())


def _outcomes() -> "defaultdict[str, asyncio.Future[ToolOutcome]]":
    return defaultdict(lambda: asyncio.get_running_loop().create_future())


class CallGate:
    """The calls of the step that the program is in, by the model's id."""

    def __init__(self) -> None:
        self._verdicts = _verdicts()
        self._outcomes = _outcomes()

    async def verdict(self, call_id: str) -> str | None:
        """Wait until the call may run (None) or is refused (the reason)."""
        return await asyncio.shield(self._verdicts[call_id])

    def let_through(self, call_id: str) -> None:
        """Let the call run."""
        if not self._verdicts[call_id].done():
            self._verdicts[call_id].set_result(None)

    def refuse(self, call_id: str, reason: str) -> None:
        """Refuse the call, if nobody decided before."""
        if not self._verdicts[call_id].done():
            self._verdicts[call_id].set_result(reason)

    async def outcome(self, call_id: str) -> ToolOutcome:
        """Wait for what comes of the call."""
        return await asyncio.shield(self._outcomes[call_id])

    def settle(self, call_id: str, outcome: ToolOutcome) -> None:
        """Say what came of the call. The first word counts: the bridge knows more of it than the program repeats."""
        if not self._outcomes[call_id].done():
            self._outcomes[call_id].set_result(outcome)

    def forget(self) -> None:
        """Begin a new step. Ids are the model's: nothing says that it never uses one again."""
        self._verdicts.clear()
        self._outcomes.clear()
