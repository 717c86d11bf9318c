"""Limits tool results to what a model can take."""

from dataclasses import replace

from nova_workers.base.media import media_problem
from nova_workers.contracts.content import ContentBlock, storable_json, text_block
from nova_workers.engines.turn.seam import ToolOutcome

_TAIL_SHARE = 4
"""A quarter of what is kept of a long text is its end, where errors and totals are."""


def within_bounds(outcome: ToolOutcome, max_chars: int) -> ToolOutcome:
    """Return the outcome in a storable form, with long text cut, and with a note for each omitted block.

    Args:
        outcome: The tool's outcome.
        max_chars: Limit of text characters, for all blocks together.
    """
    room = max_chars
    kept: list[ContentBlock] = []
    for block in outcome.content:
        fitting = _fit(storable_json(block), room)
        room -= len(_text(fitting))
        kept.append(fitting)
    return replace(outcome, content=tuple(kept))


def _fit(block: ContentBlock, room: int) -> ContentBlock:
    kind = block.get("type")
    source = block.get("source")
    if kind in ("image", "document") and isinstance(source, dict) and source.get("type") == "base64":
        problem = media_problem(str(source.get("media_type")), str(source.get("data", "")))
        if problem is not None:
            return text_block(f"[Left out: {kind} that {problem}.]")
    text = _text(block)
    if len(text) <= max(room, 0):
        return block
    cut = _middle_cut(text, max(room, 0))
    if kind == "text":
        return {**block, "text": cut}
    return {**block, "source": {**block["source"], "data": cut}}


def _middle_cut(text: str, room: int) -> str:
    tail = room // _TAIL_SHARE
    note = f"[… {len(text) - room:,} of {len(text):,} characters are left out …]"
    head_text = text[: room - tail]
    tail_text = text[len(text) - tail :] if tail else ""
    return "\n".join(part for part in (head_text, note, tail_text) if part)


def _text(block: ContentBlock) -> str:
    """Return the text that counts: of a text block, or of a plain-text document."""
    if block.get("type") == "text":
        return str(block.get("text", ""))
    source = block.get("source")
    if block.get("type") == "document" and isinstance(source, dict) and source.get("type") == "text":
        return str(source.get("data", ""))
    return ""
