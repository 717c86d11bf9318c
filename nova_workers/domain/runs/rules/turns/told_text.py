"""Keeps the text that followers of a run have equal to the text that the ledger gets."""

from __future__ import annotations

from nova_workers.contracts.content import text_of
from nova_workers.contracts.engine import StepRecord
from nova_workers.contracts.events import AssistantMessage, Restart
from nova_workers.domain.runs.sql.resume import Journal


class ToldText:
    """The text of the open step as the events of this attempt give it.

    Responses may be committed otherwise than they streamed: cut, corrected, or not at all. Before a step closes, an
    event corrects what followers have.
    """

    def __init__(self, journal: Journal) -> None:
        """Begin with what earlier attempts committed."""
        self._pieces: list[str] = []
        self._closed = journal.steps[-1].index if journal.has_waited else None
        """The open step, if a `step` event of an earlier attempt closed its text."""

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, text: str) -> None:
        """Note a piece of the text."""
        self._pieces.append(text)

    def replace(self, text: str = "") -> None:
        """Note that the text is this one now."""
        self._pieces = [text] if text else []

    def correction(self, step: StepRecord | None) -> AssistantMessage | Restart | None:
        """Return the event that gives followers the committed text of a step; None if they have it.

        Args:
            step: The open step; None if nothing of it is committed.
        """
        said = () if step is None or step.index == self._closed else step.messages
        text = "".join(text_of(message.content) for message in said if message.role == "assistant")
        if text == "".join(self._pieces):
            return None
        self.replace(text)
        return AssistantMessage(text=text, step=None if step is None else step.index) if text else Restart()
