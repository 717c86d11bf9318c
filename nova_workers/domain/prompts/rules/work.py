"""The message that starts an agent's work on a task."""

from __future__ import annotations

from typing import Final

WORK_PROMPT: Final = """\
Work on task {task_id} now. Its goal, its plan and how far it is stand in the Task section of your prompt.

1. Without a plan, make one first: a few steps, each of which can be checked (task_update_steps).
2. Do the next open step, then the ones after it, as far as you get. Really do them; say of nothing that it is done \
before it is.
3. Mark each step as soon as it is done (task_update_step), and keep what you found where it is found again: in the \
details of a step, a resource, a note.
4. Give a step away only where another agent does it better (task_create_subtask). You are woken when that ends.
5. Stuck? Change the plan. What only a person can decide or do, ask the person, if you have a tool for it. Do not ask \
what you can find out.
6. When the goal is reached, end the task with what came of it (task_complete). When it can no longer be reached, say \
why (task_cancel).

You will be started again until the task ends; what you leave open waits for then. Runs in a row that change nothing \
in the task end that. Finish with a few sentences: what you did, and what is next."""
"""The standing work prompt. It never names what the task says: that is in its section, where it cannot give orders."""


def work_words(task_id: int) -> str:
    """Return the message that starts an invocation."""
    return WORK_PROMPT.format(task_id=task_id)
