"""I5: effects, deliveries and firings happen as promised."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import UTC, timedelta
from itertools import pairwise

from tests.chaos.checker.ledger import Effect, Firing, Ledger, Trigger
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History

_MAX_ATTEMPTS = 8
"""The default of `NOVA_EFFECTS__MAX_ATTEMPTS`."""


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Check what follows runs, and what starts them."""
    yield from _effects(history, ledger)
    yield from _deliveries(history, ledger)
    yield from _firings(history, ledger)


def _effects(history: History, ledger: Ledger) -> Iterator[Violation]:
    kinds: dict[str, set[str]] = {}
    ended_at = {run.id: run.finished_at.timestamp() for run in ledger.runs if run.finished_at is not None}
    for effect in ledger.effects:
        kinds.setdefault(effect.run_id, set()).add(effect.kind)
        if effect.status in ("pending", "running") and effect.overdue_s > history.bound_s:
            yield Violation("I5", f"the effect {effect.kind} of {effect.run_id} is overdue", (str(effect),))
        if effect.status == "failed" and not _lost_its_workers(history, effect, ended_at.get(effect.run_id)):
            yield Violation("I5", f"the effect {effect.kind} of {effect.run_id} failed", (str(effect),))
    for run in ledger.runs:
        wanted = {"embeddings"} if run.status == "succeeded" else set[str]()
        if run.status in ("succeeded", "failed", "canceled"):
            wanted.add("delivery")
        if missing := wanted - kinds.get(run.id, set()):
            yield Violation("I5", f"{run.id} has no effect {', '.join(sorted(missing))}", (str(run),))


def _lost_its_workers(history: History, effect: Effect, run_ended_at: float | None) -> bool:
    """Whether an effect may have lost its worker in each attempt: as many workers ended since its run did."""
    if run_ended_at is None or effect.attempts < _MAX_ATTEMPTS or "worker was lost" not in (effect.error or ""):
        return False
    ends = sum(ended.process.startswith("worker-") and ended.at >= run_ended_at for ended in history.exits)
    return ends >= effect.attempts


def _deliveries(history: History, ledger: Ledger) -> Iterator[Violation]:
    if not ledger.webhooks:
        yield Violation("I5", "the webhook that gets the end of every run is gone")
    done = {effect.run_id for effect in ledger.effects if effect.kind == "delivery" and effect.status == "done"}
    rows = Counter((delivery.run_id, delivery.target) for delivery in ledger.deliveries)
    for run_id in done:
        for webhook in ledger.webhooks:
            if rows[run_id, webhook] != 1:
                yield Violation("I5", f"{rows[run_id, webhook]} deliveries of the end of {run_id}", (webhook,))
    yield from _sent(history, ledger)


def _sent(history: History, ledger: Ledger) -> Iterator[Violation]:
    received = {hook.delivery for hook in history.hooks}
    for delivery in ledger.deliveries:
        if delivery.status == "delivered" and delivery.id not in received:
            yield Violation("I5", f"{delivery.id} is delivered, and its receiver has not got it", (str(delivery),))
        if delivery.status == "failed":
            yield Violation("I5", f"{delivery.id} failed", (str(delivery),))
        if delivery.status == "pending" and delivery.overdue_s > history.bound_s:
            yield Violation("I5", f"{delivery.id} is overdue", (str(delivery),))
    known = {delivery.id for delivery in ledger.deliveries}
    for hook in history.hooks:
        if hook.type == "run.completed" and hook.at < ledger.read_at and hook.delivery not in known:
            yield Violation("I5", "a webhook got what is not in the ledger", (str(hook),))


def _firings(history: History, ledger: Ledger) -> Iterator[Violation]:
    by_trigger: dict[str, list[Firing]] = {}
    for firing in ledger.firings:
        by_trigger.setdefault(firing.trigger_id, []).append(firing)
    if not any((trigger.title or "").startswith("every ") for trigger in ledger.triggers):
        yield Violation("I5", "the trigger that fires all the time is gone")
    for trigger in ledger.triggers:
        firings = by_trigger.get(trigger.id, [])
        match (trigger.title or "").split():
            case ["every", seconds, "s"]:
                yield from _gaps(trigger, firings, timedelta(seconds=int(seconds)), history.healed_at)
            case ["occurrences", *wanted]:
                got = [f"{firing.scheduled_for.astimezone(UTC):%Y-%m-%dT%H:%MZ}" for firing in firings]
                if got != wanted:
                    yield Violation("I5", f"{trigger.id} had other occurrences", (f"{got}", f"promised {wanted}"))
            case _:
                pass
    yield from _fired_runs(ledger)


def _gaps(trigger: Trigger, firings: list[Firing], period: timedelta, healed_at: float) -> Iterator[Violation]:
    """A trigger fires at each period from its creation until the last fault is removed, and after that."""
    if not firings or firings[0].scheduled_for - trigger.created_at > period:
        yield Violation("I5", f"{trigger.id} left out its first occurrence", tuple(str(each) for each in firings[:1]))
    if not firings or firings[-1].scheduled_for.timestamp() < healed_at:
        evidence = (str(trigger), *(str(each) for each in firings[-1:]))
        yield Violation("I5", f"{trigger.id} has no occurrence after the last fault", evidence)
    for before, after in pairwise(firings):
        if after.scheduled_for - before.scheduled_for != period:
            what = f"{trigger.id} left out or doubled an occurrence"
            yield Violation("I5", what, (str(before), str(after)))


def _fired_runs(ledger: Ledger) -> Iterator[Violation]:
    """Runs of triggers and occurrences that fired are the same in number and in pairs."""
    runs = {run.id for run in ledger.runs}
    fired = Counter(firing.run_id for firing in ledger.firings if firing.outcome == "fired")
    for run_id, times in fired.items():
        if run_id not in runs:
            yield Violation("I5", f"{times} occurrences fired without a run", (str(run_id),))
        elif times > 1:
            yield Violation("I5", f"{run_id} is of {times} occurrences", ())
    for run in ledger.runs:
        if run.trigger_id is not None and run.id not in fired:
            yield Violation("I5", f"{run.id} of a trigger has no occurrence that fired", (str(run),))
