"""What people see of a rollout: figures of both versions, in all and over time, and how far its guardrails are."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from nova_workers.base.errors import existing
from nova_workers.contracts.http.rollouts import (
    GuardrailState,
    RolloutHistory,
    RolloutPeriod,
    RolloutReport,
    RolloutView,
    VersionFigures,
)
from nova_workers.domain.agents.sql import records as agents
from nova_workers.domain.rollouts.rules.guardrails import next_look
from nova_workers.domain.rollouts.sql import observations
from nova_workers.domain.rollouts.sql import records as ledger
from nova_workers.ledger.database import Connection

MOST_PERIODS: Final = 48
_LENGTHS_S: Final = (60, 300, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400)
"""Lengths of periods that people read easily; longer ones are whole days."""
_DAY_S: Final = 86_400


async def report_rollout(connection: Connection, tenant_id: str, agent_id: str) -> RolloutReport:
    """Return the newest rollout of an agent, with the figures of both versions.

    Raises:
        NotFound: There is no such agent, or it has had no rollout.
        Gone: The agent was deleted.
    """
    await agents.get_agent(connection, tenant_id, agent_id)
    return await _report(
        connection, tenant_id, existing(await ledger.find_rollout(connection, tenant_id, agent_id), "rollout", agent_id)
    )


async def read_history(
    connection: Connection, tenant_id: str, agent_id: str, rollout_id: str, *, now: datetime
) -> RolloutHistory:
    """Return a rollout of an agent, with the figures of both versions in all and over time.

    Raises:
        NotFound: There is no such agent, or it has had no such rollout.
        Gone: The agent was deleted.
    """
    await agents.get_agent(connection, tenant_id, agent_id)
    rollout = await ledger.get_rollout(connection, tenant_id, agent_id, rollout_id)
    report = await _report(connection, tenant_id, rollout)
    periods = periods_of(rollout.created_at, rollout.ended_at or now)
    candidate, baseline = [
        await observations.read_periods(
            connection, tenant_id, rollout, version, since=periods[0][0], length=periods[0][1] - periods[0][0]
        )
        for version in (rollout.version, rollout.baseline_version)
    ]
    return RolloutHistory(
        **dict(report),
        periods=[
            RolloutPeriod(
                since=since,
                until=until,
                candidate=candidate.get(place) or _nothing(rollout.version),
                baseline=baseline.get(place) or _nothing(rollout.baseline_version),
            )
            for place, (since, until) in enumerate(periods)
        ],
    )


def periods_of(since: datetime, until: datetime) -> list[tuple[datetime, datetime]]:
    """Return the periods of a time, at most `MOST_PERIODS`, each of the shortest length of a few that suffices."""
    span_s = max((until - since).total_seconds(), 1.0)
    days = -(-span_s // (MOST_PERIODS * _DAY_S))
    length_s = next((length for length in _LENGTHS_S if span_s <= MOST_PERIODS * length), days * _DAY_S)
    length = timedelta(seconds=length_s)
    return [(since + at * length, since + (at + 1) * length) for at in range(int(-(-span_s // length_s)))]


async def _report(connection: Connection, tenant_id: str, rollout: RolloutView) -> RolloutReport:
    candidate = await observations.read_figures(connection, tenant_id, rollout, rollout.version)
    baseline = await observations.read_figures(connection, tenant_id, rollout, rollout.baseline_version)
    values = await observations.count_values(connection, tenant_id, rollout)
    judged = await ledger.read_judged(connection, tenant_id, rollout.id)
    return RolloutReport(
        rollout=rollout,
        candidate=candidate,
        baseline=baseline,
        guardrails=[
            GuardrailState(
                measure=one.measure,
                tolerance=one.tolerance,
                values=values[one.measure],
                last=judged.found.get(one.measure),
                next_look=next_look(judged.looks.get(one.measure, 0)),
            )
            for one in rollout.guardrails
        ],
    )


def _nothing(version: int) -> VersionFigures:
    return VersionFigures(
        version=version, runs=0, failed=0, mean_cost_usd=None, mean_latency_s=None, rated=0, mean_score=None
    )
