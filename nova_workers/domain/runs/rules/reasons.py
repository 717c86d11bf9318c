"""Says why a run has not moved: every reason, from what the ledger and Redis know at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta

from nova_workers.base.vocabulary import QueuedReason, RunReasonKind
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.http.reasons import RunReason, RunReasons
from nova_workers.contracts.installs import describe_needs
from nova_workers.contracts.queue_positions import count_before
from nova_workers.contracts.runs import SHARED_LOSSES
from nova_workers.contracts.waits import HoldDetail, describe_waits
from nova_workers.domain.runs.sql.reasons import RunFacts

_PAUSED: Mapping[str, tuple[QueuedReason, str]] = {
    "fleet": ("fleet_paused", "The fleet is paused{why}. An operator ends it with `nova fleet resume --scope fleet`."),
    "tenant": ("tenant_paused", "The tenant is paused{why}. `nova fleet resume` ends it."),
    "agent": ("agent_paused", "Its agent is paused{why}. `nova fleet resume --agent {target}` ends it."),
    "rename": ("agent_renamed", "Its agent is being renamed; its runs go on under the new id."),
}


@dataclass(frozen=True, slots=True)
class QueueSight:
    """What Redis knows of a queue and of a conversation.

    Attributes:
        workers: Live workers that serve the queue and do not drain.
        slots: Of these workers, together.
        busy: Of these slots.
        doorbells: That wait in the broker.
        lock_s: How long the lock of the conversation lasts yet; None without a lock.
    """

    workers: int
    slots: int
    busy: int
    doorbells: int
    lock_s: float | None


def reasons_of(facts: RunFacts, sight: QueueSight | None) -> RunReasons:
    """Return every reason why a run has not moved.

    Args:
        facts: Of the ledger.
        sight: Of Redis; None if Redis does not answer.
    """
    match facts.status:
        case "queued":
            held_back = [*_canceling(facts), *_held_back(facts)]
            reasons = [*held_back, *_unserved(facts, sight, waits_for_slot=not held_back)]
        case "running":
            reasons = [*_canceling(facts), *_running(facts)]
        case "waiting":
            reasons = [*_canceling(facts), *map(_waits, facts.waits)]
        case "scheduled":
            text = "It starts at its time. Cancel it and send it again to start it now."
            reasons = [RunReason(kind="scheduled", text=text, until=facts.start_at)]
        case ended:
            hint = " `nova runs retry` tries it again." if ended == "failed" else ""
            text = f"It has ended: {ended}.{hint}"
            reasons = [RunReason(kind="ended", text=text, since=facts.finished_at)]
    return RunReasons(run_id=facts.run_id, status=facts.status, at=facts.at, reasons=reasons)


def _canceling(facts: RunFacts) -> Iterator[RunReason]:
    if facts.cancel_requested_at is not None:
        how = "its worker stops it" if facts.status == "running" else "the next worker that claims it ends it"
        yield RunReason(kind="canceling", text=f"Its end was asked for, and {how}.", since=facts.cancel_requested_at)


def _held_back(facts: RunFacts) -> Iterator[RunReason]:
    yield from map(_paused, facts.pauses)
    if facts.is_held:
        yield _held(facts)
    if facts.busy_run_id is not None:
        text = f"Run {facts.busy_run_id} has its conversation, and is {facts.busy_status}: see `nova runs why` for it."
        yield RunReason(kind="thread_busy", text=text, since=facts.busy_since)
    if facts.before:
        runs = "run goes" if facts.before == 1 else "runs go"
        before = count_before(facts.before)
        text = f"{before} queued {runs} before it in its conversation; the first is {facts.first_run_id}."
        yield RunReason(kind="behind_in_thread", text=text, since=facts.first_since)
    yield from _full(facts)
    if facts.lacking:
        text = f"No live worker has {describe_needs(facts.lacking)}: start one with `nova worker --project WHEEL`."
        yield RunReason(kind="project", text=text, since=facts.queued_at)
    if facts.losses >= SHARED_LOSSES:
        text = f"It lost its worker {facts.losses} times, so it waits for a process of its own."
        yield RunReason(kind="suspect", text=text, since=facts.queued_at)


def _paused(pause: JsonObject) -> RunReason:
    kind, text = _PAUSED[pause["scope"]]
    why = f": {pause['reason']}" if pause["reason"] else ""
    return RunReason(kind=kind, text=text.format(why=why, target=pause["target"]), since=_time(pause["since"]))


def _held(facts: RunFacts) -> RunReason:
    detail = HoldDetail.model_validate(facts.hold_detail)
    text = f"Its model provider cannot be used: {detail.summary}. {detail.advice}"
    return RunReason(kind="provider", text=text, since=facts.held_since, until=facts.held_until)


def _full(facts: RunFacts) -> Iterator[RunReason]:
    kinds: tuple[tuple[RunReasonKind, str, int | None, int], ...] = (
        ("tenant_full", "tenant", facts.tenant_most, facts.tenant_running),
        ("agent_full", "agent", facts.agent_most, facts.agent_running),
    )
    for kind, whose, most, running in kinds:
        if most is not None and running >= most:
            yield RunReason(kind=kind, text=f"Its {whose} has {running} runs at once, and may have {most}.")


def _unserved(facts: RunFacts, sight: QueueSight | None, *, waits_for_slot: bool) -> Iterator[RunReason]:
    if sight is None:
        text = "Redis does not answer, which calls the workers: check NOVA_REDIS_URL. The run starts when it is back."
        yield RunReason(kind="redis_unavailable", text=text)
        return
    if not sight.workers:
        text = f"No worker is alive for the queue {facts.queue!r}: start one with `nova worker`."
        yield RunReason(kind="no_worker", text=text, since=facts.queued_at)
        return
    if waits_for_slot:
        yield RunReason(kind="worker", text=_of_slots(facts, sight), since=facts.queued_at)
    if sight.lock_s is not None and facts.busy_run_id is None:
        text = "The lock of its conversation is held although no run has it. `nova runs kick` removes the lock."
        yield RunReason(kind="lock", text=text, until=facts.at + timedelta(seconds=sight.lock_s))


def _of_slots(facts: RunFacts, sight: QueueSight) -> str:
    text = (
        f"It waits for a slot on the queue {facts.queue!r}: {sight.busy} of {sight.slots} are busy. Its doorbell was "
        f"last rung at {facts.rang_at.isoformat(timespec='seconds')}, and {sight.doorbells} wait in the broker."
    )
    if sight.busy < sight.slots and not sight.doorbells:
        text += " If it is not claimed in a moment, `nova runs kick` rings again."
    return text


def _running(facts: RunFacts) -> Iterator[RunReason]:
    expires = facts.lease_expires_at
    if expires is not None and expires <= facts.at:
        text = (
            f"The lease of worker {facts.worker_id} has expired, and no process has taken the run back. Each worker "
            "does so every few seconds: see that one is alive, or use `nova runs requeue`."
        )
        yield RunReason(kind="lease_expired", text=text, since=expires)
    else:
        text = f"Worker {facts.worker_id} executes it, attempt {facts.attempt}; its lease is renewed in time."
        yield RunReason(kind="executes", text=text, since=facts.claimed_at, until=expires)
    for tool in facts.calls:
        text = f"The model called its tool {tool!r}, which has no result yet."
        yield RunReason(kind="call", text=text, since=facts.stepped_at)
    if not facts.calls:
        text = "No tool of it executes: it waits for its model, or writes what the model answered."
        yield RunReason(kind="model", text=text, since=facts.stepped_at or facts.claimed_at)


def _waits(wait: JsonObject) -> RunReason:
    text = f"It waits for {describe_waits([wait['kind']])}."
    if wait["child_run_id"]:
        text += f" That is run {wait['child_run_id']}, which is {wait['child_status']}."
    return RunReason(kind="waits", text=text, since=_time(wait["since"]), until=_time(wait["until"]))


def _time(value: str | None) -> datetime | None:
    return None if value is None else datetime.fromisoformat(value)
