"""How the fleet stands, as Home says it in one sentence, and what to do about it, as its own page does."""

from __future__ import annotations

from datetime import UTC, datetime

from nova_workers.base.vocabulary import QueuedReason
from nova_workers.console.pages.home.overview import health_of
from nova_workers.console.queued import hints_of
from nova_workers.contracts.http.fleet import FleetView, QueuedGroup, QueuedView, WorkerView, served_by_none_but


def _queued(*reasons: QueuedReason) -> QueuedView:
    groups = [QueuedGroup(queue="background", reason=reason, runs=2, oldest_age_s=1.0) for reason in reasons]
    return QueuedView(groups=groups)


def _fleet(*, answers: bool = True, failed: int = 0) -> FleetView:
    runs = {"failed": failed} if failed else {}
    return FleetView(runs=runs, queues=[], workers=None, redis_answers=answers, switches=[])


def test_the_worst_is_said_with_the_way_to_its_cause() -> None:
    held = health_of(_fleet(failed=3), _queued("thread_busy", "no_worker"))
    assert (held.tone, held.text) == ("bad", "2 queued runs wait: no worker of this queue is alive.")
    assert held.href == "/runs?status=queued&queue=background"
    assert health_of(_fleet(answers=False, failed=3), _queued()).tone == "bad"
    failed = health_of(_fleet(failed=1), _queued("thread_busy"))
    assert (failed.tone, failed.text) == ("warn", "One run failed in the last hour.")
    assert health_of(_fleet(), _queued("worker", "behind_in_thread")).tone == "good"


def _worker(*, busy: int = 4, draining: bool = False) -> WorkerView:
    seen_at = datetime(2026, 11, 22, tzinfo=UTC)
    return WorkerView(
        id="wkr_1", host="a", pid=1, queues=["background"], slots=4, busy=busy, draining=draining, seen_at=seen_at
    )


def _hints(
    reason: QueuedReason, workers: list[WorkerView] | None, *, age_s: float = 60.0
) -> list[tuple[str, str | None]]:
    group = QueuedGroup(queue="background", reason=reason, runs=2, oldest_age_s=age_s)
    fleet = FleetView(runs={}, queues=[], workers=workers, switches=[])
    return [(hint.text, hint.command) for hint in hints_of(fleet, QueuedView(groups=[group]))]


def test_runs_that_wait_for_long_have_a_sentence_on_what_ends_that() -> None:
    ((text, command),) = _hints("worker", [_worker(), _worker()])
    assert "2 runs wait in the queue background: all 8 slots" in text
    assert command == "nova worker"
    # They get one soon; or the key sees no workers, and may start none.
    assert _hints("worker", [_worker()], age_s=2.0) == []
    assert _hints("worker", None) == []
    assert _hints("no_worker", [_worker()])[0][1] == "nova worker --queues background"
    assert _hints("thread_busy", [_worker()]) == []


def test_workers_that_drain_are_named_with_what_happens_to_their_runs() -> None:
    ((text, _),) = _hints("thread_busy", [_worker(), _worker(busy=3, draining=True)])
    assert (
        text == "One worker drains: no new run starts there. 3 runs there stop at their next step, and go on elsewhere."
    )


def test_queues_that_only_one_worker_serves_are_named_before_it_drains() -> None:
    one, other = _worker(), _worker().model_copy(update={"id": "wkr_2"})
    assert served_by_none_but(one, [one]) == ["background"]
    assert served_by_none_but(one, [one, other]) == []
    assert served_by_none_but(one, [one, other.model_copy(update={"draining": True})]) == ["background"]
    assert served_by_none_but(one, [one, other.model_copy(update={"drain_ordered_at": one.seen_at})]) == ["background"]
