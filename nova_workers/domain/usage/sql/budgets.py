"""Daily budgets and what was spent.

A day of a tenant's own budgets is a calendar day in its time zone. The ceiling of an operator counts the last 24 hours,
so that a tenant begins no new day by another time zone.

What runs share is reserved before each model call, in the row of the run's turn (`reserve`): the most that the call may
cost, and what the turn has used since its last commit. The commit of the usage clears it. It counts only while the
claim that wrote it has the run, so the end of a claim releases it, however the claim ended. The part for open calls is
written beside it: only that part is still to become less, so calls of other runs wait for nothing else of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from nova_workers.base.errors import RunLost
from nova_workers.base.vocabulary import DUE_RUNS, BudgetKind, Limit, sql_list
from nova_workers.contracts.http.overview.budgets import BudgetsView, BudgetView
from nova_workers.contracts.orchestration import TreeSpending
from nova_workers.contracts.runs import Claim
from nova_workers.domain.runs.sql.filters import IS_RUNNING
from nova_workers.ledger.database import Connection

# The database's clock and time zones decide when a day begins.
_DAY = """
SELECT w.id AS tenant_id, w.timezone, w.max_cost_usd_per_day,
       (w.ceilings ->> 'max_cost_usd_per_day')::numeric AS ceiling_usd,
       date_trunc('day', now(), w.timezone) AS since,
       (date_trunc('day', now() AT TIME ZONE w.timezone) + interval '1 day') AT TIME ZONE w.timezone AS resets_at
  FROM tenants w
 WHERE w.id = :tenant_id
"""

# What open runs of the tenant have used so far; until a run ends, only its turn has this. A run that has been waiting
# or queued since before today has used nothing today, so it is left out. The turn's cost is a scalar subquery: as a
# join with queued runs the planner may scan every turn.
_BEGUN = f"""
SELECT r.id, r.agent_id, r.trigger_id, (SELECT t.cost_usd FROM turns t WHERE t.id = r.turn_id) AS cost_usd,
       CASE WHEN r.status = 'running'
            THEN (SELECT t.reserved_usd FROM turns t WHERE t.id = r.turn_id AND t.reserved_fence = r.fence)
        END AS reserved_usd,
       CASE WHEN r.status = 'running'
            THEN (SELECT LEAST(t.open_usd, t.reserved_usd) FROM turns t
                   WHERE t.id = r.turn_id AND t.reserved_fence = r.fence AND t.reserved_usd IS NOT NULL)
        END AS open_usd,
       r.status = 'running' OR r.queued_at >= day.since AS today
  FROM day, runs r
 WHERE r.tenant_id = :tenant_id AND r.status IN {sql_list(DUE_RUNS)} AND r.turn_id IS NOT NULL
   AND (r.status = 'running' OR r.queued_at >= LEAST(day.since, now() - interval '24 hours'))
   AND r.id IS DISTINCT FROM :except_run_id
"""

_TODAY = "day.since"
_LAST_24_HOURS = "now() - interval '24 hours'"


def _used(since: str, also: str = "true") -> str:
    return f"""
COALESCE((SELECT sum(u.cost_usd) FROM usage u
           WHERE u.tenant_id = :tenant_id AND u.created_at >= {since} AND {also}), 0)
"""


def _of_all(since: str = _TODAY) -> str:
    """Usage of runs that ended today, plus open runs. A trigger's run that took more than a week is not counted."""
    return f"SELECT {_used(since)} + COALESCE((SELECT sum(b.cost_usd) FROM begun b WHERE b.today), 0)"


def _of_24_hours(since: str = _LAST_24_HOURS) -> str:
    """Return the same of the last 24 hours, for the operator's ceiling. A calendar's day may have 25 hours."""
    return f"SELECT {_used(since)} + COALESCE((SELECT sum(b.cost_usd) FROM begun b), 0)"


def _of_agent(agent: str, since: str = _TODAY) -> str:
    return f"""
SELECT {_used(since, f"u.agent_id = {agent}")}
     + COALESCE((SELECT sum(b.cost_usd) FROM begun b WHERE b.agent_id = {agent} AND b.today), 0)
"""


def _of_trigger(trigger: str) -> str:
    return f"""
SELECT COALESCE((SELECT sum(COALESCE(u.cost_usd, t.cost_usd))
                   FROM runs r
                   LEFT JOIN usage u ON u.run_id = r.id AND u.created_at >= day.since
                   LEFT JOIN turns t ON t.id = r.turn_id AND r.status IN {sql_list(DUE_RUNS)}
                                    AND (r.status = 'running' OR r.queued_at >= day.since)
                  WHERE r.trigger_id = {trigger} AND r.tenant_id = :tenant_id
                    AND r.created_at >= day.since - interval '7 days' AND r.id IS DISTINCT FROM :except_run_id), 0)
"""


# Computes only the requested sums.
_SPENT = f"""
WITH day AS ({_DAY}), begun AS MATERIALIZED ({_BEGUN})
SELECT day.resets_at, day.timezone,
       CASE WHEN :of_tenant THEN ({_of_all()}) END::float8 AS tenant_usd,
       CASE WHEN :agent_id::text IS NOT NULL THEN ({_of_agent(":agent_id")}) END::float8 AS agent_usd,
       CASE WHEN :trigger_id::text IS NOT NULL THEN ({_of_trigger(":trigger_id")}) END::float8
           AS trigger_usd,
       CASE WHEN :of_ceiling THEN ({_of_24_hours()}) END::float8 AS ceiling_usd
  FROM day
"""

# One lock per tenant, until the transaction ends: of two calls that are reserved at once, the second counts the first.
_LOCK = "SELECT pg_advisory_xact_lock(hashtextextended('nova budgets ' || :tenant_id, 0))"


def _of_others(of: str = "true") -> str:
    """Return the reservations of other runs, and the part of them for open calls."""
    return f"""
       (SELECT COALESCE(sum(b.reserved_usd), 0) AS reserved_usd, COALESCE(sum(b.open_usd), 0) AS open_usd
          FROM begun b WHERE b.id <> :run_id AND {of})
"""


# Usage of runs that ended a while ago, to which nothing is added any more: a row has the time at which its transaction
# began, and none takes minutes. Read once for many calls, outside of the lock: a tenant may have 100,000 rows a day.
_CLOSED = f"""
WITH day AS ({_DAY}), closed AS (SELECT now() - interval '5 minutes' AS until)
SELECT closed.until,
       CASE WHEN :of_ceiling THEN {_used(_LAST_24_HOURS, "u.created_at < closed.until")} END::float8 AS ceiling,
       CASE WHEN :of_tenant THEN {_used(_TODAY, "u.created_at < closed.until")} END::float8 AS tenant,
       CASE WHEN :of_agent THEN {_used(_TODAY, "u.created_at < closed.until AND u.agent_id = :agent_id")} END::float8
           AS agent
  FROM day, closed
"""

# The budgets of a run whose limit is given. Spent is what the ledger has since then, of this run too, and what other
# runs have used since their last commit; open is what they have reserved for open calls.
_SHARED = f"""
WITH day AS ({_DAY}), begun AS MATERIALIZED ({_BEGUN})
SELECT kind, most_usd, (spent_usd + reserved_usd - open_usd)::float8 AS spent_usd, open_usd::float8, day.resets_at,
       day.timezone
  FROM day
 CROSS JOIN LATERAL (
       SELECT 'ceiling' AS kind, :ceiling_usd::float8 AS most_usd,
              ({_of_24_hours(f"GREATEST({_LAST_24_HOURS}, :until::timestamptz)")}) AS spent_usd, others.*
         FROM {_of_others()} others
        WHERE :ceiling_usd::float8 IS NOT NULL
       UNION ALL
       SELECT 'tenant', :tenant_usd::float8, ({_of_all(f"GREATEST({_TODAY}, :until::timestamptz)")}), others.*
         FROM {_of_others()} others
        WHERE :tenant_usd::float8 IS NOT NULL
       UNION ALL
       SELECT 'agent', :agent_usd::float8, ({_of_agent(":agent_id", f"GREATEST({_TODAY}, :until::timestamptz)")}),
              others.*
         FROM {_of_others("b.agent_id = :agent_id")} others
        WHERE :agent_usd::float8 IS NOT NULL
       UNION ALL
       SELECT 'trigger', :trigger_usd::float8, ({_of_trigger(":trigger_id")}), others.*
         FROM {_of_others("b.trigger_id = :trigger_id")} others
        WHERE :trigger_usd::float8 IS NOT NULL) budgets
"""

# Idempotent: it writes the whole reservation of the turn.
_RESERVE = f"""
UPDATE turns t
   SET reserved_usd = :usd::float8::numeric, reserved_tokens = :tokens, reserved_fence = r.fence,
       open_usd = :open_usd::float8::numeric, open_tokens = :open_tokens
  FROM runs r
 WHERE r.id = :run_id AND r.fence = :fence AND {IS_RUNNING} AND t.id = r.turn_id
RETURNING t.id
"""

# All budgets that are set: the tenant's first, then the operator's ceiling, then those of agents and triggers by id.
_REPORT = f"""
WITH day AS ({_DAY}), begun AS MATERIALIZED ({_BEGUN})
SELECT kind, id, name, max_usd::float8, spent_usd::float8
  FROM day
 CROSS JOIN LATERAL (
       SELECT 'tenant' AS kind, day.tenant_id AS id, NULL AS name, day.max_cost_usd_per_day AS max_usd,
              ({_of_all()}) AS spent_usd
       UNION ALL
       SELECT 'ceiling', day.tenant_id, NULL, day.ceiling_usd, ({_of_24_hours()}) WHERE day.ceiling_usd IS NOT NULL
       UNION ALL
       SELECT 'agent', a.id, a.spec ->> 'name', a.max_cost_usd_per_day, ({_of_agent("a.id")})
         FROM agents a
        WHERE a.tenant_id = :tenant_id AND a.deleted_at IS NULL AND a.max_cost_usd_per_day IS NOT NULL
       UNION ALL
       SELECT 'trigger', g.id, g.title, g.max_cost_usd_per_day, ({_of_trigger("g.id")})
         FROM triggers g
        WHERE g.tenant_id = :tenant_id AND g.deleted_at IS NULL AND g.max_cost_usd_per_day IS NOT NULL) budgets
 ORDER BY array_position(ARRAY['tenant', 'ceiling', 'agent', 'trigger'], kind), id
"""


@dataclass(frozen=True, slots=True)
class SpentToday:
    """What was spent since the day began, in US dollars; None for sums that were not requested.

    Open runs count with what they have used so far, unless they only waited or were queued today. Models without a
    known price count as zero.
    """

    resets_at: datetime
    timezone: str
    tenant_usd: float | None
    agent_usd: float | None
    trigger_usd: float | None
    ceiling_usd: float | None = None
    """The cost of the tenant in the last 24 hours."""


async def spent_today(
    connection: Connection,
    tenant_id: str,
    *,
    of_tenant: bool = True,
    of_ceiling: bool = False,
    agent_id: str | None = None,
    trigger_id: str | None = None,
    except_run_id: str | None = None,
) -> SpentToday:
    """Return the cost of a tenant today, and of an agent and a trigger in it.

    Args:
        of_tenant: Whether to compute the tenant's sum.
        of_ceiling: Whether to compute its sum of the last 24 hours.
        except_run_id: A run to leave out: the one whose budget is checked.
    """
    row = await connection.fetchrow(
        _SPENT,
        tenant_id=tenant_id,
        except_run_id=except_run_id,
        agent_id=agent_id,
        trigger_id=trigger_id,
        of_tenant=of_tenant,
        of_ceiling=of_ceiling,
    )
    assert row is not None, f"there is no tenant {tenant_id!r}"  # noqa: S101 - a defect, not an input
    return SpentToday(
        row["resets_at"],
        row["timezone"],
        row["tenant_usd"],
        row["agent_usd"],
        row["trigger_usd"],
        row["ceiling_usd"],
    )


@dataclass(frozen=True, slots=True)
class SharedBudget:
    """A budget of several runs, in US dollars, or in tokens if it is an orchestration's of tokens.

    Attributes:
        spent: What the ledger has, and what other runs have used since their last commit.
        reserved: By open calls of other runs.
        resets_at: When its next day begins, in `timezone`; None of one without days.
    """

    kind: BudgetKind
    most: float
    spent: float
    reserved: float
    resets_at: datetime | None = None
    timezone: str = "UTC"
    in_tokens: bool = False

    @property
    def limit(self) -> Limit:
        """The limit that it is to a turn."""
        return "tokens" if self.in_tokens else "cost"


async def lock_budgets(connection: Connection, tenant_id: str) -> None:
    """Serialize the reservations of a tenant until the transaction ends. Read the budgets in a later statement."""
    await connection.execute(_LOCK, tenant_id=tenant_id)


@dataclass(frozen=True, slots=True)
class ClosedUsage:
    """What runs had cost, in US dollars, that ended before a moment: by the budget in which it counts."""

    until: datetime
    usd: Mapping[str, float]


async def closed_usage(connection: Connection, claim: Claim) -> ClosedUsage:
    """Return the closed usage in the budgets of a day that a claimed run shares with others."""
    budgets = claim.budgets
    row = await connection.fetchrow(
        _CLOSED,
        tenant_id=claim.tenant_id,
        of_ceiling=budgets.ceiling_usd is not None,
        of_tenant=budgets.tenant_usd is not None,
        of_agent=budgets.agent_usd is not None,
        agent_id=claim.agent_id,
    )
    assert row is not None, f"there is no tenant {claim.tenant_id!r}"  # noqa: S101 - a defect, not an input
    return ClosedUsage(row["until"], {kind: row[kind] or 0.0 for kind in ("ceiling", "tenant", "agent")})


async def shared_budgets(connection: Connection, claim: Claim, closed: ClosedUsage) -> Sequence[SharedBudget]:
    """Return the budgets of a day that a claimed run shares with others, as they are now.

    What left the day since `closed` was read still counts.
    """
    budgets = claim.budgets
    rows = await connection.fetch(
        _SHARED,
        tenant_id=claim.tenant_id,
        run_id=claim.run_id,
        except_run_id=None,
        until=closed.until,
        ceiling_usd=budgets.ceiling_usd,
        tenant_usd=budgets.tenant_usd,
        agent_usd=budgets.agent_usd,
        agent_id=claim.agent_id,
        trigger_usd=budgets.trigger_usd,
        trigger_id=claim.trigger_id,
    )
    return [
        SharedBudget(
            row["kind"],
            row["most_usd"],
            row["spent_usd"] + closed.usd.get(row["kind"], 0.0),
            row["open_usd"],
            row["resets_at"],
            row["timezone"],
        )
        for row in rows
    ]


async def reserve(connection: Connection, claim: Claim, *, opened: TreeSpending, used: TreeSpending) -> None:
    """Set what a claimed run reserves.

    Args:
        opened: For its open calls.
        used: For what it has used since its last commit.

    Raises:
        RunLost: The run is not this claim's any more.
    """
    own = used + opened
    row = await connection.fetchval(
        _RESERVE,
        run_id=claim.run_id,
        fence=claim.fence,
        usd=own.cost_usd,
        tokens=own.tokens,
        open_usd=opened.cost_usd,
        open_tokens=opened.tokens,
    )
    if row is None:
        raise RunLost(f"Run {claim.run_id!r} is no longer held; no call is reserved.", run_id=claim.run_id)


async def report_budgets(connection: Connection, tenant_id: str) -> BudgetsView:
    """Return every budget of a tenant that is set, with today's spending."""
    day = await spent_today(connection, tenant_id, of_tenant=False)
    return BudgetsView(
        timezone=day.timezone,
        resets_at=day.resets_at,
        items=[BudgetView(**row) for row in await connection.fetch(_REPORT, tenant_id=tenant_id, except_run_id=None)],
    )
