"""Decides what to write of a run's text, so that a reader of its events gets each text once."""

from typing import NamedTuple

from nova_workers.client.run_text import RunText
from nova_workers.contracts.events import AssistantMessage, Event, Restart, Step, StreamEnd, StreamStart, Token


class Piece(NamedTuple):
    """What an event changes in the text that is shown."""

    text: str
    """The text to write."""
    replaces: bool
    """Whether what is shown of the open step is void."""


class ShownText:
    """The text of one run after another, written to a place where it stays.

    Args:
        resumed: Whether the first event may be inside a step, of which the reader got the text before it elsewhere.
    """

    def __init__(self, *, resumed: bool = False) -> None:
        self._begins_inside = resumed
        self._text = RunText()
        self._void = ""
        """What is shown of the open step, since a new attempt began: its response comes again if it is committed."""

    def take(self, event: Event) -> Piece:
        """Take the next event, and return what it changes."""
        piece = self._piece(event)
        self._note(event)
        self._text.feed(event)
        if isinstance(event, StreamEnd) and event.final:
            self._text = RunText()
        return piece

    def _note(self, event: Event) -> None:
        match event:
            case StreamStart():
                self._void = self._text.open or self._void
                self._begins_inside = self._begins_inside and bool(self._void)
            case Token(agent=None):
                # After void text it is another response, from its first piece on.
                self._begins_inside = self._begins_inside and not self._void
                self._void = ""
            case AssistantMessage(agent=None):
                self._void = ""
            case Restart(agent=None) | Step() | StreamEnd(final=True):
                self._begins_inside, self._void = False, ""
            case _:
                pass

    def _piece(self, event: Event) -> Piece:
        shown = self._text.open or self._void
        match event:
            case Token(agent=None, text=text):
                return Piece(text, replaces=bool(self._void))
            case AssistantMessage(agent=None, text=text) if not self._text.repeats(event):
                if self._begins_inside and shown and text.endswith(shown):
                    return Piece("", replaces=False)
                if text.startswith(shown):
                    return Piece(text[len(shown) :], replaces=False)
                return Piece(text, replaces=True)
            case Restart(agent=None):
                return Piece("", replaces=bool(shown))
            case _:
                return Piece("", replaces=False)
