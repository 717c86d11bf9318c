"""`nova tenant`: a tenant's days, hours, share of the fleet and bounds; `nova budgets`: the rest of the day's."""

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.resources import group
from nova_workers.cli.terminal.output import Facts, Output, money, stamp
from nova_workers.contracts.agents import Ceilings
from nova_workers.contracts.http.overview.budgets import BudgetsView, BudgetView
from nova_workers.contracts.http.tenants import TenantPatch, TenantView

app = group("See and change a tenant's settings.")

TenantOption = Annotated[str | None, typer.Option(help="Another tenant's id; needs the operator scope.")]
_NO_BOUND = "none"


@remote(app, "show")
async def show(session: Session, tenant: TenantOption = None) -> None:
    """Show time zone, hours, share of the fleet and bounds."""
    session.out.record(await session.client.tenants.get(tenant_id=tenant), tenant_facts)


@remote(app, "set")
async def change(
    session: Session,
    timezone: Annotated[str | None, typer.Option(help="IANA name, such as Europe/Berlin.")] = None,
    work_from: Annotated[int | None, typer.Option(help="First hour at which tasks are worked on.")] = None,
    work_until: Annotated[int | None, typer.Option(help="The hour at which that ends.")] = None,
    work_every_s: Annotated[int | None, typer.Option(help="How often a task is worked on.")] = None,
    weight: Annotated[int | None, typer.Option(help="Share of a busy fleet; needs the operator scope.")] = None,
    max_running: Annotated[
        str | None, typer.Option(help="Most runs at once, or `none`; needs the operator scope.")
    ] = None,
    max_cost_usd_per_day: Annotated[str | None, typer.Option(help="Most that a day may cost, or `none`.")] = None,
    tenant: TenantOption = None,
) -> None:
    """Change the given settings."""
    changed = given(
        timezone=timezone,
        work_from=work_from,
        work_until=work_until,
        work_every_s=work_every_s,
        weight=weight,
        max_running=max_running,
        max_cost_usd_per_day=max_cost_usd_per_day,
    )
    change = build(TenantPatch, bounds(changed))
    session.out.record(await session.client.tenants.patch(change, tenant_id=tenant), tenant_facts)


@remote(app, "budgets")
async def budgets(session: Session) -> None:
    """Show today's budgets, what was spent, and when the next day begins."""
    session.out.write(await session.client.tenants.budgets(), _show_budgets)


def _show_budgets(out: Output, view: BudgetsView) -> None:
    out.table(("whose", "id", "most a day", "spent", "left"), [_row(each) for each in view.items])
    out.note(f"The next day begins at {stamp(view.resets_at, zone=view.timezone)} ({view.timezone}).")


def _row(budget: BudgetView) -> tuple[str, ...]:
    bounds = ("no bound", "") if budget.max_usd is None else (money(budget.max_usd), money(budget.left_usd))
    return budget.kind, budget.id, bounds[0], money(budget.spent_usd), bounds[1]


def bounds(changed: Mapping[str, Any]) -> dict[str, Any]:
    """Return changed fields as the API takes them: `none` is None, which removes a bound."""
    return {name: None if value == _NO_BOUND else value for name, value in changed.items()}


def tenant_facts(tenant: TenantView) -> Facts:
    """Return a tenant's state and settings."""
    bound, cost = tenant.max_running, tenant.max_cost_usd_per_day
    return (
        ("tenant", f"{tenant.id} ({tenant.name})"),
        ("state", tenant.state),
        ("time zone", tenant.timezone),
        ("tasks", f"{tenant.work_from}:00 to {tenant.work_until}:00, every {tenant.work_every_s} s"),
        ("weight", tenant.weight),
        ("most runs at once", "no bound" if bound is None else bound),
        ("most cost a day", "no bound" if cost is None else money(cost)),
        *_ceiling_facts(tenant.ceilings),
    )


def _ceiling_facts(ceilings: Ceilings | None) -> list[tuple[str, str]]:
    if ceilings is None:
        return [("ceilings", "none: its agents may be given everything")]
    cost = ceilings.max_cost_usd_per_day
    return [
        ("highest trust", ceilings.trust),
        ("directories", ", ".join(("the tenant's own", *ceilings.directories))),
        ("engines", "all but scripted" if ceilings.engines is None else ", ".join(ceilings.engines) or "none"),
        ("MCP commands", ", ".join(ceilings.mcp_commands) or "none"),
        ("ceiling of cost a day", "no bound" if cost is None else money(cost)),
        ("workers", "common, or a pool of its trust" if ceilings.pool is None else f"pool {ceilings.pool}"),
        ("sandbox", "required" if ceilings.sandbox else "not required"),
        ("network of commands", ceilings.egress if ceilings.sandbox else "all"),
    ]
