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
    "identity",
    "instructions",
    "responsibilities",
    "directories",
    "storage",
    "formatting",
    "context",
    "memories",
    "task",
    "background",
)
"""The tags, in their order: the first six follow the configuration, the others the turn."""

_CONFIGURED_SECTIONS = 6
_TURN_SECTION = re.compile(rf"^<(?:{'|'.join(SECTIONS[_CONFIGURED_SECTIONS:])})>$", re.MULTILINE)
_TAG_START = re.compile(rf"<(?=\s*/?\s*(?:{'|'.join(SECTIONS)})\b)", re.IGNORECASE)
"""What could open or close a section, in any case and spacing that a model might take for the tag."""


def build_system_prompt(
    agent: AgentSpec,
    *,
    storage: str = "",
    formatting: str = "",
    context: Mapping[str, str] | None = None,
    memories: Sequence[str] = (),
    task: str = "",
    background: str = "",
) -> str:
    """Return the system prompt. A section without content is absent; with none at all the prompt is empty.

    Content cannot close its section or open another: a tag in it that is one of ours has its ``<`` escaped. Any
    other markup stays as it is.

    Args:
        agent: Gives identity, instructions, responsibilities and directories.
        storage: Where the agent may keep what it makes.
        formatting: How answers should look where they are read.
        context: Facts of this turn by name, such as the date or the channel.
        memories: What is remembered, one fact each.
        task: What this run works on.
        background: What else there is to know.
    """
    content = {
        "identity": agent.identity,
        "instructions": agent.instructions,
        "responsibilities": "\n\n".join(_responsibility(duty) for duty in agent.responsibilities),
        "directories": _bullets(agent.directories),
        "storage": storage,
        "formatting": formatting,
        "context": _bullets(f"{name}: {value}" for name, value in (context or {}).items()),
        "memories": _bullets(memories),
        "task": task,
        "background": background,
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
