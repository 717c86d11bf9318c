"""A response of a program's model, assembled from what the program reports."""

from dataclasses import dataclass, field

from nova_workers.contracts.content import ORIGIN, ContentBlock, JsonObject, text_block
from nova_workers.engines.programs.frames import BridgeCall, Frame, Reasoning, Text
from nova_workers.engines.resilience import CHARS_A_TOKEN
from nova_workers.engines.turn import Draft


@dataclass(slots=True)
class ResponseSoFar:
    """What of a response has arrived."""

    draft: Draft
    calls: list[BridgeCall] = field(default_factory=list[BridgeCall])
    _text: str = ""
    _reasoning: str = ""

    def take(self, frame: Frame) -> None:
        """Add a piece of the response, and forward it at once. Other reports are ignored.

        Raises:
            TurnStopped: The turn must stop.
        """
        match frame:
            case Text(text, whole):
                self.draft.begin()
                piece = f"\n\n{text}" if whole and self._text else text
                self._text += piece
                self.draft.token(piece)
            case Reasoning(text):
                self.draft.begin()
                self._reasoning += text
                self.draft.reasoning(text)
            case BridgeCall():
                self.draft.begin()
                self.calls.append(frame)
            case _:
                pass

    @property
    def tokens(self) -> int:
        """An estimate of what the model produced."""
        of_calls = sum(len(call.name) + len(str(call.arguments)) for call in self.calls)
        return round((len(self._text) + len(self._reasoning) + of_calls) / CHARS_A_TOKEN)

    def content(self, engine: str) -> tuple[ContentBlock, ...]:
        """Return the blocks for the ledger. Reasoning has its origin, since no other model takes it."""
        origin = {"provider": engine, "model": self.draft.model}
        thought = (
            ({"type": "thinking", "thinking": self._reasoning, ORIGIN: origin},) if self._reasoning.strip() else ()
        )
        said = (text_block(self._text),) if self._text.strip() else ()
        calls: list[JsonObject] = [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments} for call in self.calls
        ]
        return (*thought, *said, *calls)
