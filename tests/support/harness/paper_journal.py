"""A journal of an agent in Python on paper, for tests of what is built on `Context`."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from typing import Any

from nova_workers.contracts.user_agents import Finished, JournalEntry, SpokenMessage
from nova_workers.sdk.durable import Used, Wanted


class Died(Exception):
    """The worker died before the journal had a step."""


class PaperJournal:
    """Implements `Journal` with a list of steps, and dies before it has more than some. People answer "blue".

    Attributes:
        entries: The steps.
        said: What was emitted by this attempt.
        questions: What people were asked by this attempt.
    """

    def __init__(
        self,
        entries: Sequence[JournalEntry],
        earlier: Sequence[JournalEntry] = (),
        most: int = 99,
        answer: str = "blue",
    ) -> None:
        """Take the steps of this run, those of earlier turns, after how many to die, and what people answer."""
        self.entries = list(entries)
        self.said = ""
        self.questions: list[str] = []
        self._answer = answer
        self._ahead = list(entries)
        self._earlier = earlier
        self._most = most

    @property
    def replaying(self) -> bool:
        """See `Journal.replaying`."""
        return bool(self._ahead)

    def recorded(self) -> JournalEntry | None:
        """See `Journal.recorded`."""
        return self._ahead[0] if self._ahead else None

    async def earlier(self, name: str) -> tuple[Finished, ...]:
        """See `Journal.earlier`."""
        finished = (each for entry in self._earlier for each in entry.finished)
        return tuple(each for each in finished if each.operation.input.get("name") == name)

    async def history(self) -> tuple[SpokenMessage, ...]:
        """See `Journal.history`."""
        return ()

    def emit(self, text: str) -> None:
        """See `Journal.emit`."""
        if not self._ahead:
            self.said += text

    async def execute(self, wanted: Sequence[Wanted[Any]]) -> JournalEntry:
        """See `Journal.execute`."""
        if self._ahead:
            entry = self._ahead.pop(0)
            assert [each.operation.label for each in wanted] == [each.operation.label for each in entry.finished]
            return entry
        if len(self.entries) == self._most:
            raise Died
        entry = JournalEntry(finished=tuple(await asyncio.gather(*map(self._finished, wanted))))
        self.entries.append(entry)
        return entry

    async def _finished(self, wanted: Wanted[Any]) -> Finished:
        if wanted.function is None:
            if question := wanted.operation.input.get("question"):
                self.questions.append(question)
            return Finished(operation=wanted.operation, text=self._answer)
        try:
            value = wanted.function.function()
            if wanted.function.is_async:
                value = await value
        except Exception as error:
            return Finished(operation=wanted.operation, text=str(error), failed=True)
        return Finished(operation=wanted.operation, text=json.dumps(value.value if isinstance(value, Used) else value))
