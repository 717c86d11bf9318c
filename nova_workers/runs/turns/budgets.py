"""Checks daily budgets before a model is called."""

from __future__ import annotations

from dataclasses import replace
from zoneinfo import ZoneInfo

from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.runs import Claim
from nova_workers.errors import EngineFailure
from nova_workers.ledger.database import Database
from nova_workers.ledger.runs.budgets import SpentToday, spent_today
from nova_workers.runs.persist import persist

__all__ = ["within_budgets"]


async def within_budgets(database: Database, claim: Claim, abort: AbortSignal) -> Claim:
    """Return a claim with the rest of the day's budgets. Without budgets this costs nothing.

    Runs that begin at the same time see the same rest, so together they may exceed it, each by less than the rest.

    Raises:
        EngineFailure: A budget is spent; the message names it and when it resets.
        RunLost: The database was unavailable until the lease expired.
    """
    budgets = claim.budgets
    if not budgets.any:
        return claim
    spent = await persist(
        database,
        abort,
        lambda c: spent_today(
            c,
            claim.tenant_id,
            of_tenant=budgets.tenant_usd is not None,
            agent_id=None if budgets.agent_usd is None else claim.agent_id,
            trigger_id=None if budgets.trigger_usd is None else claim.trigger_id,
            except_run_id=claim.run_id,
        ),
    )
    rests: list[float] = []
    for owner, most_usd, used_usd in (
        ("the tenant", budgets.tenant_usd, spent.tenant_usd),
        (f"agent {claim.agent_id!r}", budgets.agent_usd, spent.agent_usd),
        (f"trigger {claim.trigger_id!r}", budgets.trigger_usd, spent.trigger_usd),
    ):
        if most_usd is None or used_usd is None:
            continue
        if used_usd >= most_usd:
            raise _refusal(owner, most_usd, used_usd, spent)
        rests.append(most_usd - used_usd)
    return replace(claim, left_usd=min(rests, default=None))


def _refusal(owner: str, most_usd: float, used_usd: float, spent: SpentToday) -> EngineFailure:
    resets_at = spent.resets_at.astimezone(ZoneInfo(spent.timezone))
    return EngineFailure(
        f"Today's budget of {owner} is spent: ${used_usd:.4f} of ${most_usd:.4f}. The model was not called. It resets "
        f"at {resets_at:%Y-%m-%d %H:%M} ({spent.timezone}); or raise max_cost_usd_per_day and send the message "
        "again.",
        kind="budget_exceeded",
        retryable=False,
        spent_usd=used_usd,
        max_usd=most_usd,
    )
