"""Builds an agent's system prompt.

One pure function: the same input gives the same bytes. Sections stand in a fixed order, from what changes with the
agent's configuration to what changes with every turn, so that two prompts of one agent share the longest possible
prefix and the provider's prompt cache can hold it.
"""

import re
from collections.abc import Iterable, Mapping, Sequence

from nova_workers.contracts.agents import AgentSpec, Responsibility

__all__ = ["SECTIONS", "build_system_prompt", "stable_prefix_chars"]

SECTIONS = (
    "Identity",
    "Instructions",
    "Responsibilities",
    "Directories",
    "Storage",
    "Formatting",
    "Context",
    "Memories",
    "Task",
    "Background",
)
"""The tags, in their order: the first six follow the configuration, the others the turn."""

_CONFIGURED_SECTIONS = 6
_TURN_SECTION = re.compile(rf"^<(?:{'|'.join(SECTIONS[_CONFIGURED_SECTIONS:])})>$", re.MULTILINE)

_UNSEEN = (
    r"\x00-\x08\x0e-\x1b\x7f-\x84\x86-\x9f\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    r"\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e0fff"
)
"""Characters that show nothing: a model may read a tag through them."""


def _lenient(tag: str) -> str:
    return f"[{_UNSEEN}]*".join(tag)


_TAG_START = re.compile(
    rf"[<\ufe64\uff1c](?=[\s/\uff0f\u2044\u2215{_UNSEEN}]*(?:{'|'.join(map(_lenient, SECTIONS))})\b)", re.IGNORECASE
)
"""What could open or close a section, however it is spelt, as long as a model might take it for the tag."""


def build_system_prompt(
    agent: AgentSpec,
    *,
    skills: str = "",
    storage: str = "",
    formatting: str = "",
    context: Mapping[str, str] | None = None,
    memories: Sequence[str] = (),
    task: str = "",
    background: str = "",
) -> str:
    """Return the system prompt. A section without content is absent; with none at all the prompt is empty.

    Content cannot close its section or open another: a tag in it that is one of ours has its ``<`` escaped. Any
    other markup stays as it is. Nothing is to be appended to the result: what a prompt has to say has its section.

    Args:
        agent: Gives identity, instructions, responsibilities and directories.
        skills: What the agent may read up on; stands at the end of its instructions.
        storage: Where the agent may keep what it makes.
        formatting: How answers should look where they are read.
        context: Facts of this turn by name, such as the date or the channel.
        memories: What is remembered, one fact each.
        task: What this run works on.
        background: What it means that nobody reads along.
    """
    content = {
        "Identity": agent.identity,
        "Instructions": "\n\n".join(part.strip() for part in (agent.instructions, skills) if part.strip()),
        "Responsibilities": "\n\n".join(_responsibility(duty) for duty in agent.responsibilities),
        "Directories": _bullets(agent.directories),
        "Storage": storage,
        "Formatting": formatting,
        "Context": _bullets(f"{name}: {value}" for name, value in (context or {}).items()),
        "Memories": _bullets(memories),
        "Task": task,
        "Background": background,
    }
    sections = ((tag, _escape(content[tag].strip())) for tag in SECTIONS)
    return "\n\n".join(f"<{tag}>\n{text}\n</{tag}>" for tag, text in sections if text)


def stable_prefix_chars(prompt: str) -> int:
    """Return how much of a prompt, from its start, follows the agent's configuration and not the turn.

    Args:
        prompt: From `build_system_prompt`; content cannot forge the tag of a section.
    """
    found = _TURN_SECTION.search(prompt)
    return len(prompt) if found is None else found.start()


def _escape(text: str) -> str:
    return _TAG_START.sub("&lt;", text)


def _responsibility(duty: Responsibility) -> str:
    return f"## {_one_line(duty.title)}\n{duty.content.strip()}"


def _bullets(items: Iterable[str]) -> str:
    return "\n".join(f"- {_one_line(item)}" for item in items if item.strip())


def _one_line(text: str) -> str:
    return " ".join(text.split())
