"""Checks daily budgets, and the budget of an orchestration, before a model is called."""

from __future__ import annotations

import math
from dataclasses import replace
from zoneinfo import ZoneInfo

from nova_workers.base.errors import EngineFailure
from nova_workers.base.vocabulary import BudgetKind
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.orchestration import TreeSpending
from nova_workers.contracts.runs import Claim
from nova_workers.contracts.usage import CallBound, TokenPrice
from nova_workers.domain.orchestrations.sql.open_trees import tree_spending
from nova_workers.domain.runs.rules.persist import persist
from nova_workers.domain.runs.rules.turns.tree_budget import TreeBudget, is_master, may_sum_up
from nova_workers.domain.runs.sql.resume import Journal
from nova_workers.domain.usage.sql.budgets import SharedBudget, SpentToday, spent_today
from nova_workers.ledger.database import Database


async def within_budgets(
    database: Database, claim: Claim, abort: AbortSignal, journal: Journal, tree: TreeBudget | None
) -> Claim:
    """Return a claim with the rest of its budgets. Without budgets this costs nothing.

    The master of an orchestration has the whole rest of its tree: its turn is stopped between two steps, and may then
    sum up. A turn that continues from a journal is warned of the tree's budget, as after its last step.

    Runs that begin at the same time see the same rest. Each of their calls is reserved in it (`TurnAllowance`), so that
    together they do not exceed it.

    Raises:
        EngineFailure: A budget is spent; the message names it and when it resets.
        RunLost: The database was unavailable until the lease expired.
    """
    rests = await _left_today(database, claim, abort)
    if claim.place is None or not claim.place.limits.has_budget:
        return replace(claim, left_usd=min(rests)) if rests else claim
    place = claim.place
    except_turn_id = None if is_master(claim) else claim.turn_id
    spent = await persist(
        database, abort, lambda c: tree_spending(c, place.orchestration_id, except_turn_id=except_turn_id)
    )
    tokens, usd = place.limits.token_budget, place.limits.cost_budget_usd
    reached = place.limits.reached(spent)
    if reached is not None and not await persist(database, abort, lambda c: may_sum_up(c, claim, journal.next_step)):
        raise EngineFailure(
            f"The budget of orchestration {place.orchestration_id!r} is spent: {spent.tokens} tokens and "
            f"${spent.cost_usd:.4f} of {tokens or 'unlimited'} tokens and ${usd or 'unlimited'}. The model was not "
            "called. Start another orchestration with a larger budget.",
            kind="budget_exceeded",
            retryable=False,
            budget="orchestration",
        )
    if tree is not None and journal.steps:
        own = TreeSpending(0, 0.0) if is_master(claim) else TreeSpending.of(journal.spent)
        tree.resume(spent + own)
    if is_master(claim):
        # Without a number the engine would not refuse a model whose price is unknown.
        rests += [] if usd is None else [math.inf]
        return replace(claim, left_usd=min(rests, default=None), last_call=reached)
    if usd is not None:
        rests.append(usd - spent.cost_usd)
    left_tokens = None if tokens is None else tokens - spent.tokens
    return replace(claim, left_usd=min(rests, default=None), left_tokens=left_tokens)


def refused_call(claim: Claim, bound: CallBound, budget: SharedBudget) -> EngineFailure:
    """Return the error of a model call that a budget does not afford."""
    price = bound.price or TokenPrice(0.0, 0.0)
    least_usd = bound.input_tokens * price.input_usd + bound.least_output_tokens * price.output_usd
    call = (
        f"The next call of model {bound.model!r} reads up to {bound.input_tokens:,} tokens and needs at least "
        f"{bound.least_output_tokens:,} for the answer"
    )
    call += "." if budget.in_tokens else f", which may cost ${least_usd:.4f}."
    return EngineFailure(
        f"{_state_of(claim, budget)} {call} The model was not called. {_remedy(budget)}",
        kind="budget_exceeded",
        retryable=False,
        budget=budget.kind,
        limit=budget.limit,
        spent=budget.spent,
        most=budget.most,
    )


def _state_of(claim: Claim, budget: SharedBudget) -> str:
    if budget.in_tokens:
        return f"The orchestration has used {budget.spent:,.0f} of its {budget.most:,.0f} tokens."
    spent = f"${budget.spent:.4f}"
    match budget.kind:
        case "ceiling":
            return f"The tenant has spent {spent} in the last 24 hours, and its operator permits ${budget.most:.4f}."
        case "orchestration":
            return f"The orchestration has spent {spent} of its ${budget.most:.4f}."
        case "tenant" | "agent" | "trigger":
            return f"Of today's budget of {_owner(claim, budget.kind)}, {spent} of ${budget.most:.4f} is spent."


def _owner(claim: Claim, kind: BudgetKind) -> str:
    ids = {"agent": claim.agent_id, "trigger": claim.trigger_id}
    return f"{kind} {ids[kind]!r}" if kind in ids else "the tenant"


def _remedy(budget: SharedBudget) -> str:
    match budget.kind:
        case "ceiling":
            return "Send the message again later, or ask the operator for a higher ceiling."
        case "orchestration":
            return "Start another orchestration with a larger budget."
        case _:
            return f"It resets at {_reset(budget)}; or raise max_cost_usd_per_day and send the message again."


def _reset(day: SharedBudget | SpentToday) -> str:
    assert day.resets_at is not None  # noqa: S101 - a budget of a day
    return f"{day.resets_at.astimezone(ZoneInfo(day.timezone)):%Y-%m-%d %H:%M} ({day.timezone})"


async def _left_today(database: Database, claim: Claim, abort: AbortSignal) -> list[float]:
    budgets = claim.budgets
    if not budgets.any:
        return []
    spent = await persist(
        database,
        abort,
        lambda c: spent_today(
            c,
            claim.tenant_id,
            of_tenant=budgets.tenant_usd is not None,
            of_ceiling=budgets.ceiling_usd is not None,
            agent_id=None if budgets.agent_usd is None else claim.agent_id,
            trigger_id=None if budgets.trigger_usd is None else claim.trigger_id,
            except_run_id=claim.run_id,
        ),
    )
    rests: list[float] = []
    if budgets.ceiling_usd is not None and spent.ceiling_usd is not None:
        if spent.ceiling_usd >= budgets.ceiling_usd:
            raise _at_the_ceiling(budgets.ceiling_usd, spent.ceiling_usd)
        rests.append(budgets.ceiling_usd - spent.ceiling_usd)
    days: tuple[tuple[BudgetKind, float | None, float | None], ...] = (
        ("tenant", budgets.tenant_usd, spent.tenant_usd),
        ("agent", budgets.agent_usd, spent.agent_usd),
        ("trigger", budgets.trigger_usd, spent.trigger_usd),
    )
    for kind, most_usd, used_usd in days:
        if most_usd is None or used_usd is None:
            continue
        if used_usd >= most_usd:
            raise _refusal(claim, kind, most_usd, used_usd, spent)
        rests.append(most_usd - used_usd)
    return rests


def _refusal(claim: Claim, kind: BudgetKind, most_usd: float, used_usd: float, spent: SpentToday) -> EngineFailure:
    return EngineFailure(
        f"Today's budget of {_owner(claim, kind)} is spent: ${used_usd:.4f} of ${most_usd:.4f}. The model was not "
        f"called. It resets at {_reset(spent)}; or raise max_cost_usd_per_day and send the message again.",
        kind="budget_exceeded",
        retryable=False,
        budget=kind,
        spent_usd=used_usd,
        max_usd=most_usd,
    )


def _at_the_ceiling(most_usd: float, used_usd: float) -> EngineFailure:
    return EngineFailure(
        f"The tenant has spent ${used_usd:.4f} in the last 24 hours, and its operator permits ${most_usd:.4f}. The "
        "model was not called. Send the message again later, or ask the operator for a higher ceiling.",
        kind="budget_exceeded",
        retryable=False,
        budget="ceiling",
        spent_usd=used_usd,
        max_usd=most_usd,
    )
