"""The HTTP contract of what needs a person."""

from datetime import datetime

from nova_workers.contracts.bodies import View

MAX_COUNTED = 1_000
"""Where the counts of the groups stop."""


class AttentionItem(View):
    """One thing that needs a person."""

    id: str
    """Of the wait, trigger, task, webhook, work order or orchestration."""
    title: str
    """The question, the tool, the trigger's title or prompt, the task's title, the address, the policy or the task."""
    reason: str | None = None
    """Why it needs a person, if the title does not tell."""
    agent_id: str | None = None
    run_id: str | None = None
    thread_id: str | None = None
    orchestration_id: str | None = None
    at: datetime
    """Since when, or its latest change."""
    due_at: datetime | None = None
    """When it ends without a person."""


class AttentionGroup(View):
    """Things of one kind: how many there are, and the newest."""

    count: int
    """1,000 stands for 1,000 or more."""
    items: list[AttentionItem]


class AttentionView(View):
    """What needs a person, and how much is under way. A group is null if the key lacks its scope."""

    running: int | None = None
    """Runs that workers execute for the tenant; 1,000 stands for 1,000 or more. Scope `runs`."""

    questions: AttentionGroup | None = None
    """The questions of agents. Scope `runs`, like approvals, orchestrations and orders."""
    approvals: AttentionGroup | None = None
    """Tool calls that wait for permission."""
    orchestrations: AttentionGroup | None = None
    """Those of whose agents one or more wait for a person; these waits are also in the groups above."""
    orders: AttentionGroup | None = None
    """Work orders in review."""
    triggers: AttentionGroup | None = None
    """Paused after failures. Scope `workspace`, like tasks and webhooks."""
    tasks: AttentionGroup | None = None
    """Parked: the scheduler works on them no more."""
    webhooks: AttentionGroup | None = None
    """Failing, or disabled since they failed."""
