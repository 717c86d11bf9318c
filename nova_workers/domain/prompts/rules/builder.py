"""Builds an agent's system prompt.

One pure function: the same input gives the same bytes. What changes with each turn is not in it, but before the
turn's message (see `event`). Sections have a fixed order, from those that change with the agent's
configuration to those that change with its memories and its task, so that two prompts of one agent share the longest
possible prefix, which the provider's prompt cache can hold.
"""

import re
from collections.abc import Sequence

from nova_workers.contracts.agents import AgentSpec, Responsibility
from nova_workers.domain.prompts.rules.markup import SECTIONS, STABLE_SECTIONS, bullets, one_line, section

_BETWEEN = "\n\n"
_SECTION = re.compile(rf"^<(?P<tag>{'|'.join(SECTIONS)})>\n(?P<content>.*?)\n</(?P=tag)>$", re.DOTALL | re.MULTILINE)
_CHANGING = tuple(f"{_BETWEEN}<{tag}>\n" for tag in SECTIONS[STABLE_SECTIONS:])


def build_system_prompt(
    agent: AgentSpec,
    *,
    agent_id: str = "",
    skills: str = "",
    storage: str = "",
    formatting: str = "",
    background: str = "",
    state: str = "",
    memories: Sequence[str] = (),
    task: str = "",
    caller: str = "",
) -> str:
    """Return the system prompt. A section without content is absent; with none at all the prompt is empty.

    Content cannot close its section or open another: a tag in it that is one of ours has its ``<`` escaped. Any
    other markup stays as it is. Append nothing to the result: all content has a section.

    Args:
        agent: Gives identity, instructions, responsibilities and directories.
        agent_id: Its id for tools and other agents, at the end of its identity.
        skills: Its skills, at the end of its instructions.
        storage: Where the agent may store files.
        formatting: The format of answers.
        background: How a run without a reader reaches a person.
        state: What the thread's state document is, for a run that can read it.
        memories: The memories, one fact each.
        task: The task of the thread.
        caller: What the caller of this run adds to the instructions.
    """
    named = f"You are agent {one_line(agent_id)} ({one_line(agent.name)})." if agent_id else ""
    content = {
        "Identity": _paragraphs(agent.identity, named),
        "Instructions": _paragraphs(agent.instructions, skills),
        "Responsibilities": "\n\n".join(_responsibility(duty) for duty in agent.responsibilities),
        "Directories": bullets(agent.directories),
        "Storage": storage,
        "Formatting": formatting,
        "Background": background,
        "State": state,
        "Memories": bullets(memories),
        "Task": task,
        "Caller": caller,
    }
    return _BETWEEN.join(filter(None, (section(tag, content[tag]) for tag in SECTIONS)))


def stable_prefix_chars(prompt: str) -> int:
    """Return how much of a prompt, from its start, follows the agent's configuration alone.

    Args:
        prompt: From `build_system_prompt`; content cannot forge the tag of a section.
    """
    # From the end, where these sections are: a prompt may be long.
    padded = f"{_BETWEEN}{prompt}"
    starts = [start for opening in _CHANGING if (start := padded.rfind(opening)) >= 0]
    return max(min(starts) - len(_BETWEEN), 0) if starts else len(prompt)


def sections_of(prompt: str) -> list[tuple[str | None, str]]:
    """Return the parts of a prompt in their order: the content of each section with its tag, and other text without.

    Args:
        prompt: From `build_system_prompt`, maybe with what an engine added; or any other text.
    """
    parts: list[tuple[str | None, str]] = []
    done = 0
    for found in _SECTION.finditer(prompt):
        if between := prompt[done : found.start()].strip():
            parts.append((None, between))
        parts.append((found["tag"], found["content"]))
        done = found.end()
    if rest := prompt[done:].strip():
        parts.append((None, rest))
    return parts


def _paragraphs(*parts: str) -> str:
    return "\n\n".join(part.strip() for part in parts if part.strip())


def _responsibility(duty: Responsibility) -> str:
    return f"## {one_line(duty.title)}\n{duty.content.strip()}"
