"""The text of a run, from the events of its stream: the rules for clients of docs/http-api.md."""

from __future__ import annotations

from nova_workers.contracts.events import AssistantMessage, Event, Restart, Step, StreamEnd, StreamStart, Token


class RunText:
    """The texts of a run's steps, as far as its events were received.

    It takes each event once, in order, over any number of connections. At the final event it has exactly the text of
    the ledger.
    """

    def __init__(self) -> None:
        self.open = ""
        """The text of the step that is being streamed. Void if the response or the attempt begins anew."""
        self.closed: dict[int, str] = {}
        """The text of each committed step that has one, by the index of the step."""
        self._next = 0

    @property
    def texts(self) -> tuple[str, ...]:
        """The texts of the committed steps, in order."""
        return tuple(self.closed[index] for index in sorted(self.closed))

    def feed(self, event: Event) -> None:
        """Take the next event."""
        match event:
            case Token(agent=None, text=text):
                self.open += text
            case AssistantMessage(agent=None, text=text):
                self.open = text
            case StreamStart() | Restart(agent=None):
                self.open = ""
            case Step(index=index):
                self._close(index)
            case StreamEnd(final=True):
                self._close(self._next)
            case _:
                pass

    def repeats(self, event: Event) -> bool:
        """Return whether an event brings text of a step that is closed already."""
        return isinstance(event, AssistantMessage) and event.step in self.closed

    def _close(self, index: int) -> None:
        if self.open:
            self.closed[index] = self.open
        self.open = ""
        self._next = max(self._next, index + 1)
