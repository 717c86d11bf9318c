"""How the local stand-in for a model works on a task: one step after the other, with its tools."""

from __future__ import annotations

import re
from collections.abc import Collection

from nova_workers.devstack.stand_in.reply import Reply, ToolUse

_WORK = re.compile(r"^Work on task (?P<number>\d+) now\b")
_OPEN_STEP = re.compile(r"^- \[ \] (?P<title>.+) \[(?P<id>tst_\w+)\]$", re.MULTILINE)
_TASK = re.compile(r"^Task (?P<number>\d+): (?P<title>.+)$", re.MULTILINE)
_ENDED = re.compile(r"^Task \d+ is done\.")


def work_reply(asked: str, plan: str, *, begun: Collection[str], last: str) -> Reply | None:
    """Answer the standing work prompt.

    Args:
        asked: The first message of the turn.
        plan: The prompt's section about the task.
        begun: Ids of steps that were marked in this turn.
        last: Result of the latest tool; empty before the first.

    Returns:
        The next reply; None if the message is not a work prompt.
    """
    found = _WORK.match(asked)
    if found is None:
        return None
    number = int(found["number"])
    if _ENDED.match(last):
        return Reply("All its steps are done, and so is the task.")
    step = next((step for step in _OPEN_STEP.finditer(plan) if step["id"] not in begun), None)
    if step is not None:
        return Reply(
            f"{step['title']}: done.",
            ToolUse("task_update_step", {"task_id": number, "step_id": step["id"], "done": True}),
        )
    title = _TASK.search(plan)
    outcome = f"{title['title'] if title else 'It'}: every step is done."
    return Reply("That was the last step.", ToolUse("task_complete", {"task_id": number, "outcome": outcome}))
