"""The HTTP contract of the forks of a conversation."""

from datetime import datetime

from nova_workers.contracts.bodies import View

MAX_FORKS = 200
"""Most threads of one tree."""


class ForkedThread(View):
    """A thread of the tree, and where it leaves another one's turns."""

    id: str
    agent_id: str
    title: str | None
    opening: str | None
    """The beginning of its own first message, while it has no title."""
    parent_thread_id: str | None
    """The thread whose turn it continues from. Null for the first thread of these."""
    fork_turn_id: str | None
    fork_depth: int | None
    """Depth of that turn: the thread's own turns are below it."""
    head_depth: int | None
    """Depth of its newest turn; null without one."""
    active_run_id: str | None
    deleted: bool
    updated_at: datetime


class ForkTreeView(View):
    """All threads that were forked from each other, each after the one that it continues from."""

    items: list[ForkedThread]
    complete: bool
    """Whether these are all. Otherwise they are the thread itself, those that it comes from, and of the others those
    with the fewest forks above them."""
