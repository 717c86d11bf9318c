"""The budgets that a run shares: checked before its turn, watched between its steps, reserved for each call.

The budgets of a day are of a tenant, an agent or a trigger, and an orchestration has one for its tree.

A budget is exceeded by no call: what the ledger has, what open calls may cost at most, and what turns have used since
their last commit stay together within it. Reservations of a tenant are made one after the other (`lock_budgets`), and
are a part of the turn's row: the commit of the usage replaces them, and they are void without the claim that made them.

A call that fits only once calls of other runs have ended waits for that. If the budget itself leaves less than the call
asks for, the call may produce less; if that is too little for an answer, it is refused.

In an orchestration, children end when its budget is spent. The master has one call more, to sum up what they found.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final
from zoneinfo import ZoneInfo

from nova_workers.base.errors import EngineFailure
from nova_workers.base.vocabulary import BudgetKind, Limit
from nova_workers.contracts.content import Message, text_block
from nova_workers.contracts.orchestration import OrchestrationLimits, OrchestrationPlace, TreeSpending
from nova_workers.contracts.orchestration.events import TreeNews
from nova_workers.contracts.runs import Claim
from nova_workers.contracts.usage import CallBound, TokenPrice, TokenUsage
from nova_workers.domain.orchestrations.sql.budgets import report_used, take_last_call
from nova_workers.domain.orchestrations.sql.open_trees import tree_shared, tree_spending
from nova_workers.domain.runs.sql.resume import Journal
from nova_workers.domain.threads.rules.lease import HeldRun
from nova_workers.domain.usage.sql.budgets import (
    ClosedUsage,
    SharedBudget,
    SpentToday,
    closed_usage,
    lock_budgets,
    reserve,
    shared_budgets,
    spent_today,
)
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.persist import persist

_WARNINGS: Final = (
    (80, "Finish what matters most, start nothing new, and sum up in time."),
    (50, "Plan the rest of the work with what is left."),
)
"""From how many percent an agent is warned, and what it is to do."""
_LAST_CALL: Final = (
    "The budget of this orchestration is spent. This is your last call: use no tool but task_complete, and sum up what "
    "was done and found, and what is missing."
)
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_CLOSED_FOR_S: Final = 60.0
"""How long the usage of runs that ended is not read again as a whole."""
_ROUNDING_USD: Final = 1e-9
_NOTHING: Final = TreeSpending(0, 0.0)


@dataclass(frozen=True, slots=True)
class BudgetRest:
    """What the budgets that a run shares leave for its turn; None is unlimited.

    Attributes:
        usd: Of the day's budgets and its orchestration's.
        tokens: Of its orchestration's.
        last_call: The budget of its orchestration that is spent, if it may call the model once more, to sum up.
    """

    usd: float | None = None
    tokens: int | None = None
    last_call: Limit | None = None


async def within_budgets(database: Database, run: HeldRun, journal: Journal, tree: TreeBudget | None) -> BudgetRest:
    """Return the rest of a run's budgets for its turn. Without budgets this costs nothing.

    The master of an orchestration has the whole rest of its tree: its turn is stopped between two steps, and may then
    sum up. A turn that continues from a journal is warned of the tree's budget, as after its last step.

    Runs that begin at the same time see the same rest. Each of their calls is reserved in it (`TurnAllowance`), so that
    together they do not exceed it.

    Raises:
        EngineFailure: A budget is spent; the message names it and when it resets.
        RunLost: The database was unavailable until the lease expired.
    """
    claim = run.claim
    rests = await _left_today(database, run)
    if claim.place is None or not claim.place.limits.has_budget:
        return BudgetRest(min(rests, default=None))
    place = claim.place
    except_turn_id = None if is_master(claim) else claim.turn_id
    spent = await persist(
        database, run.abort, lambda c: tree_spending(c, place.orchestration_id, except_turn_id=except_turn_id)
    )
    tokens, usd = place.limits.token_budget, place.limits.cost_budget_usd
    reached = place.limits.reached(spent)
    if reached is not None and not await persist(
        database, run.abort, lambda c: may_sum_up(c, claim, journal.next_step)
    ):
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
        return BudgetRest(min(rests, default=None), last_call=reached)
    if usd is not None:
        rests.append(usd - spent.cost_usd)
    return BudgetRest(min(rests, default=None), None if tokens is None else tokens - spent.tokens)


class TreeBudget:
    """What a turn knows of the budget of its orchestration.

    Attributes:
        reached: The budget that is spent.
        sums_up: Whether the turn is to stop for its last call.
        is_last_call: Whether the next call is that one.
    """

    def __init__(self, run: HeldRun, place: OrchestrationPlace) -> None:
        self._run = run
        self._place = place
        self._warned_percent = 0
        self._latest: str | None = None
        self._notes: list[str] = []
        self.reached: Limit | None = None
        self.sums_up = False
        self.is_last_call = False

    @property
    def stops(self) -> bool:
        """Whether the model is not called again in this turn, unless it sums up."""
        return self.reached is not None and not self.is_last_call

    def begin_last_call(self, reached: Limit | None) -> None:
        """Take note that the next call of the model is the last one, since a budget is spent."""
        self.reached, self.sums_up, self.is_last_call = reached, False, True
        self._latest = _LAST_CALL
        self._notes = [_LAST_CALL]

    def resume(self, spent: TreeSpending) -> None:
        """Warn, before the next call of the model, in a turn that continues from the journal of a former attempt."""
        percent = self._place.limits.used_percent(spent)
        due = next((each for each in _WARNINGS if each[0] <= percent), None)
        if due is not None:
            self._warn(percent, spent, *due)

    def repeat(self) -> None:
        """Repeat the latest note, since the conversation begins again with the journal, which has no notes."""
        self._notes = [] if self._latest is None else [self._latest]

    async def look(self, connection: Connection, next_step: int) -> TreeNews | None:
        """Compare what the tree has used with its budget, after a step. Return an event of what is reached first now.

        A statement for each step of agents with a budget, and two more where a warning is due.
        """
        place = self._place
        spent = await tree_spending(connection, place.orchestration_id)
        self.reached = place.limits.reached(spent)
        if self.reached is not None:
            self.sums_up = not self.is_last_call and await may_sum_up(connection, self._run.claim, next_step)
            return None
        percent = place.limits.used_percent(spent)
        due = next(((least, advice) for least, advice in _WARNINGS if self._warned_percent < least <= percent), None)
        if due is None:
            return None
        used = self._warn(percent, spent, *due)
        return await report_used(connection, place.orchestration_id, f"{used}.", percent=due[0])

    def _warn(self, percent: float, spent: TreeSpending, least: int, advice: str) -> str:
        """Add a warning to the notes, and return what it says is used."""
        self._warned_percent = least
        used = f"{percent:.0f} % of the budget of this orchestration ({_budget(self._place.limits, spent)}) is used"
        self._latest = f"{used}, by all agents together. {advice}"
        self._notes = [self._latest]
        return used

    def take_notes(self) -> tuple[Message, ...]:
        """Return the notes to read before the next call. They are not kept: the next attempt warns again."""
        notes, self._notes = self._notes, []
        return tuple(Message("user", (text_block(note),)) for note in notes)


def is_master(claim: Claim) -> bool:
    """Return whether a run is of the master of an orchestration."""
    return claim.place is not None and claim.place.parent_id is None


async def may_sum_up(connection: Connection, claim: Claim, step: int) -> bool:
    """Return whether a turn may call the model without budget for this step: the master's, once, if it has begun."""
    if claim.place is None or not is_master(claim) or step == 0:
        return False
    text = "The budget is spent; the master sums up with one call more."
    return await take_last_call(connection, claim.place.orchestration_id, text, turn_id=claim.turn_id, step=step)


@dataclass(frozen=True, slots=True)
class Granted:
    """What the budgets permit a call to produce.

    Attributes:
        output_tokens: The limit; None if the call may not be made now.
        binding: The budget that leaves less than was asked for.
        waits: Whether more is possible once calls of other runs have ended.
    """

    output_tokens: int | None
    binding: SharedBudget | None = None
    waits: bool = False


def granted_tokens(bound: CallBound, own: TreeSpending, budgets: Sequence[SharedBudget]) -> Granted:
    """Return how many tokens a call may produce.

    Args:
        bound: What it asks for.
        own: What its turn has reserved for other calls, and has used since its last commit.
        budgets: What its run shares.
    """
    left = [_affordable(bound, own, budget, 0.0) for budget in budgets]
    most = min([bound.output_tokens, *left])
    binding = None if most == bound.output_tokens else budgets[left.index(most)]
    if most < bound.least_output_tokens:
        return Granted(None, binding)
    if any(_affordable(bound, own, budget, budget.reserved) < most for budget in budgets):
        return Granted(None, binding, waits=True)
    return Granted(most, binding)


def _affordable(bound: CallBound, own: TreeSpending, budget: SharedBudget, reserved: float) -> int:
    """Return how many tokens a budget lets the call produce, at most those that it asks for."""
    if budget.in_tokens:
        return min(bound.output_tokens, int(budget.most - budget.spent - reserved - own.tokens - bound.input_tokens))
    price = bound.price or TokenPrice(0.0, 0.0)
    rest_usd = budget.most - budget.spent - reserved - own.cost_usd - bound.input_tokens * price.input_usd
    if rest_usd < -_ROUNDING_USD:
        return 0
    if price.output_usd <= 0:
        return bound.output_tokens
    return min(bound.output_tokens, math.floor((rest_usd + _ROUNDING_USD) / price.output_usd))


class TurnAllowance:
    """Implements `Allowance` for one attempt at a turn. Its state is what the ledger does not have yet."""

    def __init__(self, database: Database, run: HeldRun) -> None:
        self._database = database
        self._run = run
        self._open: dict[_Reserved, TreeSpending] = {}
        # Calls of subagents are reserved at the same time, and each writes the sum.
        self._writing = asyncio.Lock()
        self._uncommitted = _NOTHING
        self._closed: ClosedUsage | None = None
        self._closed_at_s = 0.0
        claim = run.claim
        place = claim.place
        # The master may exceed the budget of its tree with the call that sums up; it counts for the others.
        self._tree = None if place is None or not place.limits.has_budget or is_master(claim) else place
        in_usd = claim.budgets.any or (self._tree is not None and self._tree.limits.cost_budget_usd is not None)
        self._needs_price = in_usd

    @classmethod
    def of(cls, database: Database, run: HeldRun) -> TurnAllowance | None:
        """Return the allowance of a claimed run; None if it shares no budget, so that its calls cost no statement."""
        claim = run.claim
        in_tree = claim.place is not None and claim.place.limits.has_budget
        return cls(database, run) if claim.budgets.any or in_tree else None

    def committed(self) -> None:
        """Take note that the ledger has what the turn has used. No call is open then."""
        self._uncommitted = _NOTHING

    def nested(self) -> _Nested:
        """See `Allowance.nested`."""
        return _Nested(self)

    async def reserve(self, bound: CallBound) -> _Reserved:
        """See `Allowance.reserve`."""
        return await self.reserve_call(bound, writes_back=False)

    async def reserve_call(self, bound: CallBound, *, writes_back: bool) -> _Reserved:
        """Reserve a call.

        Args:
            bound: What it uses at most.
            writes_back: Whether the ledger is to have what is left of the reservation as soon as the call ended.
        """
        if bound.price is None and self._needs_price:
            raise EngineFailure(
                f"The price of model {bound.model!r} is not known, and a budget in US dollars applies. Give the model "
                "a price, or take the budget away.",
                kind="unknown",
                retryable=False,
            )
        pause_s = _FIRST_PAUSE_S
        while True:
            known = self._closed
            closed = await self._read_closed()
            async with self._writing:
                granted = await self._ask(bound, closed)
                if granted.output_tokens is not None:
                    limit = None if granted.binding is None else granted.binding.limit
                    reserved = _Reserved(self, granted.output_tokens, limit, writes_back=writes_back)
                    self._open[reserved] = _most(bound, granted.output_tokens)
                    return reserved
            if not granted.waits:
                if closed is not None and closed is known:
                    # A part of it may be of the day before by now.
                    self._closed = None
                    continue
                assert granted.binding is not None  # noqa: S101 - it refused the call
                raise refused_call(self._run.claim, bound, granted.binding)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the calls that wait
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _read_closed(self) -> ClosedUsage | None:
        """Return the cost of runs that ended, as it was read recently; None without a budget of a day."""
        now_s = asyncio.get_running_loop().time()
        if not self._run.claim.budgets.any:
            return None
        if self._closed is not None and now_s - self._closed_at_s < _CLOSED_FOR_S:
            return self._closed
        closed = self._closed = await persist(
            self._database, self._run.abort, lambda connection: closed_usage(connection, self._run.claim)
        )
        self._closed_at_s = now_s
        return closed

    async def _ask(self, bound: CallBound, closed: ClosedUsage | None) -> Granted:
        return await persist(
            self._database, self._run.abort, lambda connection: self._try(connection, bound, closed), transaction=True
        )

    async def _try(self, connection: Connection, bound: CallBound, closed: ClosedUsage | None) -> Granted:
        """Reserve the call if the budgets permit it now; else write what the turn has without it."""
        claim = self._run.claim
        # A statement of its own: the next one sees what was committed while this one waited for the lock.
        await lock_budgets(connection, claim.tenant_id)
        budgets = [] if closed is None else [*await shared_budgets(connection, claim, closed)]
        budgets += await self._of_tree(connection)
        opened, used = self._opened(), self._uncommitted
        granted = granted_tokens(bound, used + opened, budgets)
        if granted.output_tokens is not None:
            opened += _most(bound, granted.output_tokens)
        await reserve(connection, claim, opened=opened, used=used)
        return granted

    async def _of_tree(self, connection: Connection) -> list[SharedBudget]:
        place = self._tree
        if place is None:
            return []
        spent, reserved = await tree_shared(connection, place.orchestration_id, except_run_id=self._run.claim.run_id)
        budgets: list[SharedBudget] = []
        if place.limits.cost_budget_usd is not None:
            usd = place.limits.cost_budget_usd
            budgets.append(SharedBudget("orchestration", usd, spent.cost_usd, reserved.cost_usd))
        if place.limits.token_budget is not None:
            tokens = place.limits.token_budget
            budgets.append(SharedBudget("orchestration", tokens, spent.tokens, reserved.tokens, in_tokens=True))
        return budgets

    def _opened(self) -> TreeSpending:
        return sum(self._open.values(), _NOTHING)

    def settle(self, reserved: _Reserved, usage: TokenUsage) -> bool:
        """Replace a reservation by what its call used. Return whether it was open."""
        if self._open.pop(reserved, None) is None:
            return False
        self._uncommitted += TreeSpending.of(usage)
        return True

    async def write(self) -> None:
        """Let the ledger have what is reserved now."""
        async with self._writing:
            opened, used = self._opened(), self._uncommitted
            await persist(
                self._database,
                self._run.abort,
                lambda connection: reserve(connection, self._run.claim, opened=opened, used=used),
            )


class _Nested:
    """The allowance of a subagent, whose usage the turn commits with the step that called it."""

    def __init__(self, allowance: TurnAllowance) -> None:
        self._allowance = allowance

    async def reserve(self, bound: CallBound) -> _Reserved:
        """See `Allowance.reserve`."""
        return await self._allowance.reserve_call(bound, writes_back=True)

    def nested(self) -> _Nested:
        """See `Allowance.nested`."""
        return self


class _Reserved:
    """Implements `Reservation`."""

    def __init__(self, allowance: TurnAllowance, output_tokens: int, limit: Limit | None, *, writes_back: bool) -> None:
        self._allowance = allowance
        self._writes_back = writes_back
        self.output_tokens = output_tokens
        self.limit: Limit | None = limit

    async def settle(self, usage: TokenUsage) -> None:
        """See `Reservation.settle`."""
        if self._allowance.settle(self, usage) and self._writes_back:
            await self._allowance.write()

    def drop(self, usage: TokenUsage) -> None:
        """See `Reservation.drop`."""
        self._allowance.settle(self, usage)


def _most(bound: CallBound, output_tokens: int) -> TreeSpending:
    """Return the most that a call uses if it may produce so many tokens."""
    price = bound.price or TokenPrice(0.0, 0.0)
    usd = bound.input_tokens * price.input_usd + output_tokens * price.output_usd
    return TreeSpending(bound.input_tokens + output_tokens, usd)


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


async def _left_today(database: Database, run: HeldRun) -> list[float]:
    claim = run.claim
    budgets = claim.budgets
    if not budgets.any:
        return []
    spent = await persist(
        database,
        run.abort,
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


def _budget(limits: OrchestrationLimits, spent: TreeSpending) -> str:
    parts: list[str] = []
    if limits.token_budget is not None:
        parts.append(f"{spent.tokens:,} of {limits.token_budget:,} tokens")
    if limits.cost_budget_usd is not None:
        parts.append(f"${spent.cost_usd:.2f} of ${limits.cost_budget_usd:.2f}")
    return ", ".join(parts)
