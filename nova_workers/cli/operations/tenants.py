"""`nova tenants`: create, list, change and end the tenants of a fleet, as an operator."""

from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, changes, given, remote
from nova_workers.cli.operations.tenant import bounds, tenant_facts
from nova_workers.cli.resources import Argument, action, group, listing
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.agents import Ceilings
from nova_workers.contracts.http.tenants import TenantChange, TenantCreate, TenantView

app = group("Make, see, change and end tenants; needs a key with the scope operator.")

_LISTS = ("directories", "engines", "mcp_commands")

TenantArgument = Annotated[str, typer.Argument(help="The tenant's id.")]


@remote(app, "create")
async def create(
    session: Session,
    name: Annotated[str, typer.Argument(help="What it is called.")],
    tenant_id: Annotated[str | None, typer.Option("--id", help="Its id. Default: one is made.")] = None,
    timezone: Annotated[str | None, typer.Option(help="IANA name. Default: that of the fleet.")] = None,
) -> None:
    """Create a tenant with the default agents, and print its first key, which is shown only once."""
    body = build(TenantCreate, {"name": name, "id": tenant_id, "timezone": timezone})
    made = await session.client.tenants.create(body)
    scopes = ", ".join(made.key.scopes)
    about = f"The first key of tenant {made.id}, with {scopes}. Keep it now: it is not shown again."
    session.out.done(made, made.key.key, about=about, style="yellow")


listing(
    app,
    "List all tenants.",
    lambda nova: nova.tenants.list,
    Rows[TenantView](
        "No tenants.",
        Column("id", lambda tenant: tenant.id),
        Column("name", lambda tenant: tenant.name, "text"),
        Column("state", lambda tenant: tenant.state),
        Column("time zone", lambda tenant: tenant.timezone, "spare"),
        Column("created", lambda tenant: tenant.created_at, "spare"),
    ),
)
action(
    app,
    "show",
    "Show a tenant's state and settings.",
    Argument("tenant", TenantArgument),
    lambda nova, tenant: nova.tenants.find(tenant),
    tenant_facts,
)


@remote(app, "edit")
async def edit(
    session: Session,
    tenant: TenantArgument,
    name: Annotated[str | None, typer.Option(help="What it is called.")] = None,
    paused: Annotated[
        bool | None, typer.Option("--pause/--resume", help="Start no new runs, or allow them again.")
    ] = None,
    timezone: Annotated[str | None, typer.Option(help="IANA name, such as Europe/Berlin.")] = None,
    weight: Annotated[int | None, typer.Option(help="Share of a busy fleet.")] = None,
    max_running: Annotated[str | None, typer.Option(help="Most runs at once, or `none`.")] = None,
    max_cost_usd_per_day: Annotated[str | None, typer.Option(help="Most that a day may cost, or `none`.")] = None,
) -> None:
    """Change the given fields. `nova tenant set --tenant` also changes working hours."""
    changed = changes(
        "an option such as --name",
        name=name,
        paused=paused,
        timezone=timezone,
        weight=weight,
        max_running=max_running,
        max_cost_usd_per_day=max_cost_usd_per_day,
    )
    change = build(TenantChange, bounds(changed))
    session.out.record(await session.client.tenants.change(tenant, change), tenant_facts)


@remote(app, "ceilings")
async def ceilings(
    session: Session,
    tenant: TenantArgument,
    trust: Annotated[str | None, typer.Option(help="Highest trust: sandbox, controlled, unrestricted.")] = None,
    directory: Annotated[
        list[str] | None, typer.Option(help="A path below which agents may have directories; may be repeated.")
    ] = None,
    engine: Annotated[list[str] | None, typer.Option(help="An engine that agents may use; may be repeated.")] = None,
    mcp_command: Annotated[
        list[str] | None, typer.Option(help="Pattern of a command that agents may start as an MCP server; repeatable.")
    ] = None,
    max_cost_usd_per_day: Annotated[str | None, typer.Option(help="Most that a day may cost, or `none`.")] = None,
    sandbox: Annotated[
        bool | None,
        typer.Option("--sandbox/--no-sandbox", help="Whether commands need the sandbox."),
    ] = None,
    egress: Annotated[
        str | None, typer.Option(help="Network of commands in the sandbox: none, proxy (public hosts by HTTPS) or all.")
    ] = None,
    pool: Annotated[str | None, typer.Option(help="Pool of workers that executes its runs, or `none`.")] = None,
    reset: Annotated[
        list[str] | None, typer.Option(help="A list to set to its default: directories, engines or mcp_commands.")
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove all ceilings.")] = False,
) -> None:
    """Show what a tenant's agents may be given at most, or change it. A list is replaced as a whole."""
    options = given(
        trust=trust,
        directories=directory or None,
        engines=engine or None,
        mcp_commands=mcp_command or None,
        max_cost_usd_per_day=max_cost_usd_per_day,
        pool=pool,
        sandbox=sandbox,
        egress=egress,
    )
    changed = bounds(options)
    if unknown := sorted(set(reset or ()) - set(_LISTS)):
        raise InvalidInput(f"--reset {unknown[0]}: there is no such list; there are {', '.join(_LISTS)}.")
    if remove and (changed or reset):
        raise InvalidInput("--remove leaves no ceiling to change: give it alone.")
    found = await session.client.tenants.find(tenant)
    if remove:
        found = await session.client.tenants.change(tenant, TenantChange(ceilings=None))
    elif changed or reset:
        before = {} if found.ceilings is None else found.ceilings.model_dump(mode="json")
        kept = {name: value for name, value in before.items() if name not in (reset or ())}
        found = await session.client.tenants.change(tenant, TenantChange(ceilings=build(Ceilings, {**kept, **changed})))
    session.out.record(found, tenant_facts)


@remote(app, "delete")
async def delete(
    session: Session,
    tenant: TenantArgument,
    confirm: Annotated[str, typer.Option(help="The tenant's name, to confirm that all it has is to be deleted.")],
) -> None:
    """End a tenant, and delete all that it has: agents, conversations, files, keys."""
    ended = await session.client.tenants.end(tenant, confirm=confirm)
    session.out.done(ended, f"ended {ended.id}; what it has is deleted within minutes")
