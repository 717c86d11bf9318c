"""How the fleet stands, as Home says it in one sentence."""

from __future__ import annotations

from nova_workers.base.vocabulary import QueuedReason
from nova_workers.console.pages.home.overview import health_of
from nova_workers.contracts.http.fleet import FleetView, QueuedGroup, QueuedView


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
