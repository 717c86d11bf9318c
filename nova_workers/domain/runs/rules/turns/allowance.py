"""Reserves each model call of a turn in the budgets that it shares with other runs, before the call is made.

A budget is exceeded by no call: what the ledger has, what open calls may cost at most, and what turns have used since
their last commit stay together within it. Reservations of a tenant are made one after the other (`lock_budgets`), and
are a part of the turn's row: the commit of the usage replaces them, and they are void without the claim that made them.

A call that fits only once calls of other runs have ended waits for that. If the budget itself leaves less than the call
asks for, the call may produce less; if that is too little for an answer, it is refused.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from nova_workers.base.errors import EngineFailure
from nova_workers.base.vocabulary import Limit
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.orchestration import TreeSpending
from nova_workers.contracts.runs import Claim
from nova_workers.contracts.usage import CallBound, TokenPrice, TokenUsage
from nova_workers.domain.orchestrations.sql.open_trees import tree_shared
from nova_workers.domain.runs.rules.persist import persist
from nova_workers.domain.runs.rules.turns.budgets import refused_call
from nova_workers.domain.runs.rules.turns.tree_budget import is_master
from nova_workers.domain.usage.sql.budgets import (
    ClosedUsage,
    SharedBudget,
    closed_usage,
    lock_budgets,
    reserve,
    shared_budgets,
)
from nova_workers.ledger.database import Connection, Database

_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 1.0
_CLOSED_FOR_S: Final = 60.0
"""How long the usage of runs that ended is not read again as a whole."""
_ROUNDING_USD: Final = 1e-9
_NOTHING: Final = TreeSpending(0, 0.0)


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

    def __init__(self, database: Database, claim: Claim, abort: AbortSignal) -> None:
        self._database = database
        self._claim = claim
        self._abort = abort
        self._open: dict[_Reserved, TreeSpending] = {}
        # Calls of subagents are reserved at the same time, and each writes the sum.
        self._writing = asyncio.Lock()
        self._uncommitted = _NOTHING
        self._closed: ClosedUsage | None = None
        self._closed_at_s = 0.0
        place = claim.place
        # The master may exceed the budget of its tree with the call that sums up; it counts for the others.
        self._tree = None if place is None or not place.limits.has_budget or is_master(claim) else place
        in_usd = claim.budgets.any or (self._tree is not None and self._tree.limits.cost_budget_usd is not None)
        self._needs_price = in_usd

    @classmethod
    def of(cls, database: Database, claim: Claim, abort: AbortSignal) -> TurnAllowance | None:
        """Return the allowance of a claimed run; None if it shares no budget, so that its calls cost no statement."""
        in_tree = claim.place is not None and claim.place.limits.has_budget
        return cls(database, claim, abort) if claim.budgets.any or in_tree else None

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
                raise refused_call(self._claim, bound, granted.binding)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads the calls that wait
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)

    async def _read_closed(self) -> ClosedUsage | None:
        """Return the usage of ended runs, as it was read recently; None without a budget of a day."""
        now_s = asyncio.get_running_loop().time()
        if not self._claim.budgets.any:
            return None
        if self._closed is not None and now_s - self._closed_at_s < _CLOSED_FOR_S:
            return self._closed
        closed = self._closed = await persist(
            self._database, self._abort, lambda connection: closed_usage(connection, self._claim)
        )
        self._closed_at_s = now_s
        return closed

    async def _ask(self, bound: CallBound, closed: ClosedUsage | None) -> Granted:
        return await persist(
            self._database, self._abort, lambda connection: self._try(connection, bound, closed), transaction=True
        )

    async def _try(self, connection: Connection, bound: CallBound, closed: ClosedUsage | None) -> Granted:
        """Reserve the call if the budgets permit it now; else write what the turn has without it."""
        claim = self._claim
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
        spent, reserved = await tree_shared(connection, place.orchestration_id, except_run_id=self._claim.run_id)
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
                self._abort,
                lambda connection: reserve(connection, self._claim, opened=opened, used=used),
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
    """Return the most that a call uses which may produce so many tokens."""
    price = bound.price or TokenPrice(0.0, 0.0)
    usd = bound.input_tokens * price.input_usd + output_tokens * price.output_usd
    return TreeSpending(bound.input_tokens + output_tokens, usd)
