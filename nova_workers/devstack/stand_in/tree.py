"""How the local stand-in for a model plays agents of an orchestration: a master with two workers."""

from __future__ import annotations

import re

from nova_workers.devstack.stand_in.reply import Reply, ToolUse
from nova_workers.domain.prompts.rules.orchestration import role_words

_PART = re.compile(r"\((?P<number>\d)\) (?P<part>[^;.]+)")
_SUMMARY = re.compile(r"completed its task:\n(?P<summary>.+)")


def tree_reply(system: str, asked: str, results: str) -> Reply | None:
    """Answer as an agent of an orchestration.

    Args:
        system: The system prompt.
        asked: The first message of the turn.
        results: Results of the latest tools; empty before the first.

    Returns:
        The next reply; None if the prompt is not of a master or a worker, or the master's task names no parts.
    """
    if role_words("WORKER") in system:
        return Reply("I work on my part.", ToolUse("task_complete", {"summary": f"{asked.strip()}: done."}))
    if role_words("MASTER") not in system:
        return None
    if results:
        summaries = "; ".join(found["summary"].rstrip(".") for found in _SUMMARY.finditer(results))
        return Reply("All parts have come back.", ToolUse("task_complete", {"summary": f"Both parts: {summaries}."}))
    parts = [found["part"].strip() for found in _PART.finditer(asked)]
    if not parts:
        return None
    children = [{"prompt": part[:1].upper() + part[1:], "name": part.split()[-1].capitalize()} for part in parts]
    return Reply("I give each part to a worker.", ToolUse("spawn_children_parallel", {"children": children}))
