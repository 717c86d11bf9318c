"""Tools that the model does not get, although a server offers them."""

from collections.abc import Sequence
from dataclasses import dataclass

_MOST_NAMED = 20
"""How many tools a note names one by one: a server may have a thousand."""


@dataclass(frozen=True, slots=True)
class LeftOutTool:
    """A tool that was left out.

    Attributes:
        name: As the model would see it.
        why: The reason, in words that follow the name and a colon.
    """

    name: str
    why: str


def missing_note(unreachable: Sequence[str], left_out: Sequence[LeftOutTool]) -> str | None:
    """Return the note to the model about tools that are missing; None if there are all.

    Args:
        unreachable: Servers that did not answer.
        left_out: Tools that the provider would refuse, or refused.
    """
    parts: list[str] = []
    if unreachable:
        parts.append(
            "These tool servers do not answer at the moment, so their tools are missing: "
            + ", ".join(unreachable)
            + "."
        )
    if left_out:
        parts.append(f"These tools are not available: {'; '.join(listed(left_out))}.")
    if not parts:
        return None
    return " ".join((*parts, "Where that keeps you from doing what is asked, say so."))


def listed(left_out: Sequence[LeftOutTool]) -> list[str]:
    """Return a short text for each tool, and for what is too much to name."""
    lines = [f"{tool.name} ({tool.why})" for tool in left_out[:_MOST_NAMED]]
    rest = len(left_out) - _MOST_NAMED
    return lines if rest <= 0 else [*lines, f"and {rest} more"]
