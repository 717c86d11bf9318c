"""Why queued runs wait, in words, and what a person can do about it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from nova_workers.base.vocabulary import QueuedReason
from nova_workers.contracts.http.fleet import FleetView, QueuedGroup, QueuedView, WorkerView

REASONS: Final[Mapping[QueuedReason, tuple[str, str]]] = {
    "fleet_paused": ("the fleet is paused", "warn"),
    "tenant_paused": ("the tenant is paused", "warn"),
    "agent_paused": ("their agent is paused", "warn"),
    "agent_renamed": ("their agent is being renamed", "warn"),
    "provider": ("their model provider cannot be used", "bad"),
    "thread_busy": ("a run of their conversation is under way", "idle"),
    "behind_in_thread": ("earlier messages of their conversation go first", "idle"),
    "tenant_full": ("the tenant has as many runs at once as it may", "warn"),
    "agent_full": ("their agent has as many runs at once as it may", "warn"),
    "project": ("no worker has the project of their agent", "bad"),
    "suspect": ("each lost its workers, and waits for a process of its own", "warn"),
    "redis_unavailable": ("Redis does not answer", "bad"),
    "no_worker": ("no worker of this queue is alive", "bad"),
    "worker": ("no worker slot is free yet", "live"),
}
"""Words and colour of each reason for which queued runs wait."""

_LONG_S: Final = 30.0
"""Runs that get a slot within this time need no other workers."""


class Hint(NamedTuple):
    """One sentence on what holds runs up, and what ends that.

    Attributes:
        command: For a terminal, if no page can do it.
        button: A title and the address of the page that can.
    """

    text: str
    tone: str = "warn"
    command: str | None = None
    button: tuple[str, str] | None = None


_HINTS: Final[Mapping[QueuedReason, Hint]] = {
    "tenant_full": Hint(
        "their tenant has as many runs at once as it may. Raise its limit, or let them wait.",
        command="nova tenants edit TENANT --max-running NUMBER",
    ),
    "agent_full": Hint(
        "their agent has as many runs at once as it may. Raise its limit on its page, or let them wait."
    ),
    "project": Hint(
        "no worker has the project of their agent. Start one in the folder of the project.", "bad", "nova worker"
    ),
    "suspect": Hint("each lost its workers, and runs alone in a process. They start one after another."),
}
"""What to do for each reason that is not one of workers."""


def hints_of(fleet: FleetView, queued: QueuedView) -> list[Hint]:
    """Return hints on queued runs, the largest group first, and on workers that drain.

    Pauses, and servers that are away, are shown by themselves.
    """
    hints = [hint for group in queued.groups if (hint := _of_group(group, fleet.workers)) is not None]
    return [*hints, *_of_draining(fleet.workers or ())]


def _of_group(group: QueuedGroup, workers: list[WorkerView] | None) -> Hint | None:
    runs = f"{group.runs:,} {'run waits' if group.runs == 1 else 'runs wait'} in the queue {group.queue}"
    if group.reason == "worker":
        if not workers or group.oldest_age_s < _LONG_S:
            return None
        slots = sum(worker.slots for worker in workers if group.queue in worker.queues and not worker.draining)
        text = f"{runs}: all {slots:,} slots of its workers are busy. Start another worker, also on another machine."
        return Hint(text, command="nova worker")
    if group.reason == "no_worker":
        # Without any worker that is shown by itself.
        command = f"nova worker --queues {group.queue}"
        return None if workers == [] else Hint(f"{runs}, which no worker serves. Start one for it.", "bad", command)
    hint = _HINTS.get(group.reason)
    button = ("See them", f"/runs?status=queued&queue={group.queue}")
    return None if hint is None else hint._replace(text=f"{runs}: {hint.text}", button=button)


def _of_draining(workers: Sequence[WorkerView]) -> Iterator[Hint]:
    draining = [worker for worker in workers if worker.draining]
    if draining:
        busy = sum(worker.busy for worker in draining)
        who = "One worker drains" if len(draining) == 1 else f"{len(draining)} workers drain"
        rest = f"{busy:,} runs there stop at their next step, and go on elsewhere." if busy else "It ends now."
        yield Hint(f"{who}: no new run starts there. {rest}", "idle")
