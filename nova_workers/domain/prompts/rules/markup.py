"""Tagged sections whose content cannot close them or open another."""

import re
from collections.abc import Iterable
from functools import cache

SECTIONS = (
    "Identity",
    "Instructions",
    "Responsibilities",
    "Directories",
    "Storage",
    "Formatting",
    "Background",
    "State",
    "Memories",
    "Task",
    "Caller",
)
"""The tags of a system prompt, in their order."""

STABLE_SECTIONS = 6
"""This many sections depend on the agent's configuration; the others on its tools, its memories, its task and its
caller."""

CONTEXT = "Context"
"""The tag of the block in front of a message."""

_UNSEEN = (
    r"\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
"""Characters that show nothing: a model may read a tag through them."""


def _lenient(tag: str) -> str:
    return f"[{_UNSEEN}]*".join(tag)


_BRACKETS = "<\ufe64\uff1c"


@cache
def _tag_start() -> re.Pattern[str]:
    """Return a pattern of all spellings that a model might take for the tag that opens or closes a section.

    Compiled at first use: it takes 15 ms and nearly 1 MB (measured), and most processes never look for it.
    """
    tags = "|".join(map(_lenient, (*SECTIONS, CONTEXT)))
    return re.compile(rf"[{_BRACKETS}](?=[\s/\uff0f\u2044\u2215{_UNSEEN}]*(?:{tags})\b)", re.IGNORECASE)


def section(tag: str, content: str) -> str:
    """Return content as a section; empty where the content is. A tag of ours in the content has its ``<`` escaped."""
    text = content.strip()
    # The pattern looks at each character, at ten times the cost.
    if any(bracket in text for bracket in _BRACKETS):
        text = _tag_start().sub("&lt;", text)
    return f"<{tag}>\n{text}\n</{tag}>" if text else ""


def bullets(items: Iterable[str]) -> str:
    """Return a list with one line for each item that is not blank."""
    return "\n".join(f"- {one_line(item)}" for item in items if item.strip())


def one_line(text: str) -> str:
    """Return the text with each run of white space as one space."""
    return " ".join(text.split())
