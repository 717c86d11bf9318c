"""Samplings: which live runs are judged, how their scores are kept, and what is sent when these drift.

The sweep of the workers moves them forward. All of it is in rows, so a crash loses nothing; one transaction of one
process moves an agent's samples at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Final

import structlog

from nova_workers.base.clock import Clock
from nova_workers.base.errors import Unavailable, existing, missing
from nova_workers.base.ids import new_id
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.deliveries import INBOX, NewDelivery
from nova_workers.contracts.http.sampling import Drift, SamplingPut, SamplingView
from nova_workers.contracts.runs import Doorbell
from nova_workers.domain.agents.sql.records import get_agent
from nova_workers.domain.delivery.sql.announcements import announce
from nova_workers.domain.judges.rules.asking import JudgedCase, judge_spec, read_run, score_message
from nova_workers.domain.judges.rules.budgets import room_in_budget
from nova_workers.domain.judges.sql.judgements import JudgeProgress
from nova_workers.domain.judges.sql.runs import JudgeRun, ensure_judge, queue_judges
from nova_workers.domain.sampling import sql as ledger
from nova_workers.domain.sampling.rules.drift import ERROR, REFERENCE, WINDOW, find_shift, full_windows
from nova_workers.domain.sampling.sql import PendingSample, Sampling
from nova_workers.domain.threads.sql.history import load_history_turns
from nova_workers.ledger.database import Connection
from nova_workers.ledger.work import UnitOfWork, Work

_log = structlog.get_logger(__name__)

_PER_SWEEP: Final = 20
"""How many runs of an agent are given to the judge in one sweep: each needs its conversation."""
_MAX_OPEN: Final = 50


async def put_sampling(
    transaction: Connection, tenant_id: str, agent_id: str, sampling: SamplingPut, *, created_by: str
) -> SamplingView:
    """Begin to sample an agent, or change how.

    Raises:
        NotFound, Gone: There is no such agent.
    """
    await get_agent(transaction, tenant_id, agent_id)
    await ledger.put_sampling(transaction, tenant_id, agent_id, sampling, created_by=created_by)
    return await show_sampling(transaction, tenant_id, agent_id)


async def show_sampling(connection: Connection, tenant_id: str, agent_id: str) -> SamplingView:
    """Return the sampling of an agent, with its scores over time.

    Raises:
        NotFound: There is no such agent, or it is not sampled.
        Gone: It was deleted.
    """
    await get_agent(connection, tenant_id, agent_id)
    found = existing(await ledger.find_sampling(connection, tenant_id, agent_id), "sampling", agent_id)
    progress = await ledger.read_progress(connection, tenant_id, agent_id)
    return SamplingView(
        agent=agent_id,
        percent=found.share / ledger.HUNDREDTHS,
        judge=found.judge,
        created_by=found.created_by,
        created_at=found.created_at,
        updated_at=found.updated_at,
        spent_today_usd=progress.spent_usd,
        open=progress.pending + progress.running,
        drift=found.drift,
        reference=min(REFERENCE, await ledger.count_scores(connection, found)),
        periods=await ledger.read_periods(connection, tenant_id, agent_id),
    )


async def delete_sampling(connection: Connection, tenant_id: str, agent_id: str) -> None:
    """Sample an agent no more. Its scores stay.

    Raises:
        NotFound: There is no such agent, or it is not sampled.
        Gone: It was deleted.
    """
    await get_agent(connection, tenant_id, agent_id)
    if not await ledger.delete_sampling(connection, tenant_id, agent_id):
        raise missing("sampling", agent_id)


class SamplingSweep:
    """Chooses live runs of all tenants, lets them be judged, and tests the scores. Any number of them may sweep."""

    def __init__(self, work: Work, clock: Clock) -> None:
        self._work = work
        self._clock = clock

    async def sweep(self) -> None:
        """Move the samples of each agent forward.

        Raises:
            Unavailable: The database does not answer; the next sweep goes on.
        """
        async with self._work.database.connection() as connection:
            found = await ledger.list_sampled(connection)
        for tenant_id, agent_id in found:
            try:
                async with self._work.begin() as tx:
                    sampling = await ledger.lock_sampling(tx.connection, tenant_id, agent_id)
                    bells = () if sampling is None else await self._step(tx, sampling)
                self._work.ring(bells)
            except Unavailable:
                raise
            except Exception:
                _log.exception("sampling.not_advanced", tenant_id=tenant_id, agent_id=agent_id)

    async def _step(self, tx: UnitOfWork, sampling: Sampling) -> Sequence[Doorbell]:
        await ledger.choose_runs(tx.connection, sampling)
        ended = await ledger.ended_samples(tx.connection, sampling)
        if ended:
            opinions: list[JsonObject] = []
            for row in ended:
                opinion = read_run(sampling.judge, row["status"], row["answer"], row["error"])
                given = {"score": opinion.score, "reason": opinion.reason, "cost_usd": row["cost_usd"]}
                opinions.append({"run_id": row["run_id"], **given})
            await ledger.write_scores(tx.connection, sampling.tenant_id, opinions)
            await self._test(tx, sampling)
        return await _begin(tx, sampling)

    async def _test(self, tx: UnitOfWork, sampling: Sampling) -> None:
        """Compare the windows that are full with the reference, each once."""
        full = full_windows(await ledger.count_scores(tx.connection, sampling))
        if full <= sampling.windows:
            return
        reference = await ledger.read_scores(tx.connection, sampling, skipped=0, limit=REFERENCE)
        for place in range(sampling.windows, full):
            start = REFERENCE + place * WINDOW
            # With the score before the window, after whose time a new reference would begin.
            before, *window = await ledger.read_scores(tx.connection, sampling, skipped=start - 1, limit=WINDOW + 1)
            shift = find_shift([score for score, _ in reference], [score for score, _ in window])
            if shift is None:
                continue
            drift = Drift(
                found_at=self._clock.now(),
                before=shift.before,
                after=shift.after,
                p_value=shift.p_value,
                threshold=ERROR,
            )
            is_alert = shift.is_decline
            await ledger.record_shift(
                tx.connection, sampling, reference_from=before[1], drift=drift if is_alert else None
            )
            if is_alert:
                await _announce(tx, sampling, drift)
            return
        await ledger.record_windows(tx.connection, sampling, full)


async def _begin(tx: UnitOfWork, sampling: Sampling) -> Sequence[Doorbell]:
    """Queue the judge's next runs, as far as the budget of the day reaches."""
    found = await ledger.read_progress(tx.connection, sampling.tenant_id, sampling.agent_id)
    if not found.pending:
        return ()
    progress = JudgeProgress(evaluator=0, **asdict(found))
    budget_usd = sampling.judge.budget_usd
    room = room_in_budget(budget_usd, progress)
    if room <= 0 and not found.running:
        why = f"the judge's budget of the day, {budget_usd:g} USD, is spent: {found.spent_usd:.6f} USD"
        await ledger.give_up(tx.connection, sampling, why)
        return ()
    most = min(room, _PER_SWEEP, _MAX_OPEN - found.running)
    if most <= 0:
        return ()
    samples = await ledger.next_samples(tx.connection, sampling, limit=most)
    version = await ensure_judge(tx.connection, sampling.tenant_id, judge_spec(sampling.judge))
    runs = {one.run_id: await _judge_run(tx.connection, sampling, one) for one in samples}
    bells = await queue_judges(tx.connection, sampling.tenant_id, version, list(runs.values()))
    begun = {run_id: run.run_id for run_id, run in runs.items()}
    await ledger.begin_samples(tx.connection, sampling.tenant_id, begun)
    return bells


async def _judge_run(connection: Connection, sampling: Sampling, sample: PendingSample) -> JudgeRun:
    turns = ()
    if sample.parent_turn_id is not None:
        turns = await load_history_turns(connection, sampling.tenant_id, sample.parent_turn_id)
    conversation = [
        {"role": message.role, "content": list(message.content)} for turn in turns for message in turn.messages
    ]
    case = JudgedCase(sample.question, conversation)
    return JudgeRun(new_id("run"), new_id("thr"), score_message(sampling.judge, case, sample.answer))


async def _announce(tx: UnitOfWork, sampling: Sampling, drift: Drift) -> None:
    """Put a drift into the outbox for each webhook that subscribes, and into the inbox."""
    tenant_id, agent_id = sampling.tenant_id, sampling.agent_id
    event = NewDelivery(
        id=new_id("dlv"),
        tenant_id=tenant_id,
        kind="score_drifted",
        target=INBOX,
        payload={"agent_id": agent_id, **drift.model_dump(mode="json")},
        agent_id=agent_id,
    )
    text = (
        f"The answers of agent {agent_id!r} have become worse: the judge's mean score was {drift.before:.2f}, and is "
        f"{drift.after:.2f} in its last {WINDOW} judged runs (p = {drift.p_value:.2g}, below {drift.threshold:g}). "
        f"See nova sampling show {agent_id}."
    )
    await announce(tx.connection, event, notice=text)
    tx.ring_deliveries()
