"""Sampling on the real run protocol: runs are chosen once and judged, and a drift is sent once."""

from __future__ import annotations

from typing import Any

import pytest

from nova_workers.base.clock import SystemClock
from nova_workers.contracts.evaluators import Judge
from nova_workers.contracts.http.sampling import SamplingPut, SamplingView
from nova_workers.domain.sampling.rules.service import SamplingSweep, put_sampling, show_sampling
from tests.support.harness.workers import Harness

_AGENT = "clerk"
_SAY = [{"say": "It was sent."}]
_FORM = '{"reason": "It is.", "score": 4}'
_EARLIER = """
UPDATE runs SET finished_at = finished_at - interval '11 seconds' WHERE agent_id = :agent_id RETURNING id
"""
_LOOK_BACK = """
UPDATE samplings SET looked_until = looked_until - interval '1 hour', reference_from = now() - interval '1 hour'
RETURNING agent_id
"""
_JUDGED = """
WITH n AS (SELECT id, row_number() OVER (ORDER BY id) AS place FROM runs WHERE agent_id = :agent_id)
UPDATE run_samples s
   SET state = 'done', score = CASE WHEN n.place <= :good THEN 1 ELSE 0 END,
       judged_at = now() - interval '10 minutes' + n.place * interval '1 second'
  FROM n WHERE n.id = s.run_id
RETURNING s.run_id
"""
_COPIES = """
WITH made AS (
    INSERT INTO runs (id, tenant_id, thread_id, agent_id, agent_version, seq, content, queue, source, status,
                      result_text, started_at, finished_at)
    SELECT 'run_' || lpad(n::text, 6, '0'), r.tenant_id, r.thread_id, r.agent_id, 1, 1000 + n, r.content, r.queue,
           r.source, 'succeeded', 'x', now(), now() - interval '1 day'
      FROM generate_series(1, :copies::int) n, (SELECT * FROM runs WHERE agent_id = :agent_id LIMIT 1) r
    RETURNING *
)
INSERT INTO run_samples (run_id, tenant_id, agent_id, agent_version, thread_id)
SELECT id, tenant_id, agent_id, 1, thread_id FROM made
RETURNING run_id
"""
_WEBHOOK = """
INSERT INTO webhooks (id, tenant_id, url, secret, key_id, kinds)
VALUES ('whk_1', :tenant_id, 'https://example.com', 'secret', 'k', '{score_drifted}') RETURNING id
"""
_SENT = "SELECT array_agg(kind ORDER BY kind) FROM deliveries"


@pytest.fixture
async def fleet(harness: Harness) -> Harness:
    """A fleet with an agent."""
    spec: dict[str, Any] = {"name": "Clerk", "engine": "scripted", "engine_config": {"script": _SAY}}
    await harness.add_agent(_AGENT, spec)
    return harness


async def _put(fleet: Harness, *, percent: float = 100, **fields: Any) -> None:
    script = [{"say": _FORM, "usage": {"cost_usd": 0.001}}]
    judge: dict[str, Any] = {"rubric": "Is it?", "budget_usd": 1, "engine": "scripted", **fields}
    given = SamplingPut(percent=percent, judge=Judge.model_validate({**judge, "engine_config": {"script": script}}))
    async with fleet.database.transaction() as transaction:
        await put_sampling(transaction, fleet.tenant_id, _AGENT, given, created_by="key_1")
    await fleet.database.fetch(_LOOK_BACK)


async def _view(fleet: Harness) -> SamplingView:
    async with fleet.database.connection() as connection:
        return await show_sampling(connection, fleet.tenant_id, _AGENT)


async def test_chosen_runs_are_judged_once_within_the_budget_of_the_day(fleet: Harness) -> None:
    worker = fleet.worker()
    for _ in range(4):
        await fleet.submit("Where is it?", agent_id=_AGENT)
    await fleet.settle(worker)
    # One that has just ended may have been overtaken by the commit of an earlier one.
    await _put(fleet, budget_usd=0.0025)
    sweep = SamplingSweep(fleet.work, SystemClock())
    await sweep.sweep()
    assert (await _view(fleet)).open == 0
    await fleet.database.fetch(_EARLIER, agent_id=_AGENT)
    for _ in range(6):
        await sweep.sweep()
        await fleet.settle(worker)
    found = await _view(fleet)
    (period,) = found.periods
    assert (period.version, period.judged, period.not_judged, period.mean_score) == (1, 2, 2, 0.75)
    assert (found.open, found.spent_today_usd) == (0, pytest.approx(0.002))
    assert await fleet.database.fetchval("SELECT count(*) FROM runs WHERE agent_id = 'evaluation-judge'") == 2
    assert await fleet.database.fetchval("SELECT count(*) FROM run_samples") == 4


async def test_a_drift_is_sent_once(fleet: Harness) -> None:
    worker = fleet.worker()
    await fleet.submit("Where is it?", agent_id=_AGENT)
    await fleet.settle(worker)
    await _put(fleet)
    await fleet.database.fetchval(_WEBHOOK, tenant_id=fleet.tenant_id)
    # 150 good scores and 49 bad ones; that of the run itself is the last of the window that declines.
    await fleet.database.fetch(_COPIES, agent_id=_AGENT, copies=199)
    await fleet.database.fetch(_JUDGED, agent_id=_AGENT, good=150)
    await fleet.database.fetch(_EARLIER, agent_id=_AGENT)
    sweep = SamplingSweep(fleet.work, SystemClock())
    for _ in range(3):
        await sweep.sweep()
        await fleet.settle(worker)
    assert await fleet.database.fetchval(_SENT) == ["notification", "score_drifted"]
    found = await _view(fleet)
    assert found.drift is not None
    assert (found.drift.before, found.drift.after < 0.05, found.reference) == (1.0, True, 50)
