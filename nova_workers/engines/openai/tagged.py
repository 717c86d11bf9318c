"""Reasoning and calls that a server leaves in the text, between the tags of the model's own template."""

import re
from collections.abc import Collection, Iterator

from nova_workers.contracts.content import JsonObject
from nova_workers.engines.turn.intake import parse_input

_TAGS = ("think", "thinking", "thought")
_OPENINGS = {f"<{tag}>": tag for tag in _TAGS}
_CALL = r"<tool_call>\s*(\{.*?\})\s*</tool_call>"
_CALLS_AT_END = re.compile(rf"(?:{_CALL}\s*)+\Z", re.DOTALL)
_CALLS = re.compile(_CALL, re.DOTALL)


class ThinkTags:
    """Separates a text that begins with reasoning in tags, piece by piece. Tags within the answer are the answer's.

    Attributes:
        tag: The tag that the text began with.
    """

    def __init__(self) -> None:
        self.tag: str | None = None
        self._held: str | None = ""
        """What may be part of a tag; None once the answer has begun."""
        self._trims = False
        """Whether the answer after the reasoning has not begun yet."""

    def split(self, piece: str) -> Iterator[tuple[bool, str]]:
        """Yield the next texts, each with whether it is reasoning."""
        if self._held is None:
            if self._trims:
                piece = piece.lstrip()
                self._trims = not piece
            yield False, piece
            return
        self._held += piece
        if self.tag is None:
            begun = self._held.lstrip()
            opening = next((each for each in _OPENINGS if begun.startswith(each)), None)
            if opening is None:
                if not any(each.startswith(begun) for each in _OPENINGS):
                    yield from self.rest()
                return
            self.tag, self._held = _OPENINGS[opening], begun[len(opening) :].lstrip("\n")
        closing = f"</{self.tag}>"
        thought, closed, answer = self._held.partition(closing)
        if closed:
            self._held = None
            yield True, thought.rstrip()
            answer = answer.lstrip()
            self._trims = not answer
            yield False, answer
            return
        kept = next((size for size in range(len(closing) - 1, 0, -1) if thought.endswith(closing[:size])), 0)
        self._held = thought[len(thought) - kept :]
        yield True, thought[: len(thought) - kept]

    def rest(self) -> Iterator[tuple[bool, str]]:
        """Yield the text that was held back, once it has ended."""
        held, self._held = self._held, None
        if held:
            yield self.tag is not None, held


def calls_at_end(text: str, names: Collection[str]) -> tuple[str, list[JsonObject]]:
    """Return a text without the calls that it ends with, and these calls.

    Servers without a parser for a model's calls send them so. A text whose calls are not all of tools that were offered
    is an answer.
    """
    found = _CALLS_AT_END.search(text) if "</tool_call>" in text else None
    if found is None:
        return text, []
    calls: list[JsonObject] = []
    for each in _CALLS.finditer(found[0]):
        call = parse_input(each[1])
        if not isinstance(call, dict) or not isinstance(call.get("name"), str) or call["name"] not in names:
            return text, []
        given = call.get("arguments", call.get("parameters"))
        calls.append({"name": call["name"], "arguments": parse_input(given) if isinstance(given, str) else given})
    return text[: found.start()], calls
