"""`nova tenants`: create, list, change and end the tenants of a fleet, as an operator."""

from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.operations.tenant import NO_BOUND, show_tenant
from nova_workers.cli.terminal.output import Column, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.agents import Ceilings
from nova_workers.contracts.http.tenants import TenantChange, TenantCreate, TenantView

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Make, see, change and end tenants; needs a key with the scope operator.",
)

_COLUMNS: tuple[Column, ...] = ("id", ("name", "text"), "state", ("time zone", "spare"), ("created", "spare"))

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
    if session.out.json:
        session.out.document(made)
        return
    session.out.text(made.key.key)
    session.out.note(
        f"The first key of tenant {made.id}, with {', '.join(made.key.scopes)}. Keep it now: it is not shown again.",
        "yellow",
    )


@remote(app, "list")
async def list_tenants(session: Session, limit: LimitOption = 50, cursor: CursorOption = None) -> None:
    """List all tenants."""
    page = await session.client.tenants.list(limit=limit, cursor=cursor)
    show_page(session.out, page, _COLUMNS, _row, nothing="No tenants.")


@remote(app, "show")
async def show(session: Session, tenant: TenantArgument) -> None:
    """Show a tenant's state and settings."""
    show_tenant(session, await session.client.tenants.find(tenant))


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
    given = {
        "name": name,
        "paused": paused,
        "timezone": timezone,
        "weight": weight,
        "max_running": max_running,
        "max_cost_usd_per_day": max_cost_usd_per_day,
    }
    changes = {field: None if value == NO_BOUND else value for field, value in given.items() if value is not None}
    if not changes:
        raise InvalidInput("Nothing to change: give an option such as --name.")
    show_tenant(session, await session.client.tenants.change(tenant, build(TenantChange, changes)))


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
    given: dict[str, object] = {
        "trust": trust,
        "directories": directory,
        "engines": engine,
        "mcp_commands": mcp_command,
        "max_cost_usd_per_day": max_cost_usd_per_day,
        "pool": pool,
        "sandbox": sandbox,
        "egress": egress,
    }
    changes = {name: None if value == NO_BOUND else value for name, value in given.items() if value not in (None, [])}
    if unknown := sorted(set(reset or ()) - set(_LISTS)):
        raise InvalidInput(f"--reset {unknown[0]}: there is no such list; there are {', '.join(_LISTS)}.")
    if remove and (changes or reset):
        raise InvalidInput("--remove leaves no ceiling to change: give it alone.")
    found = await session.client.tenants.find(tenant)
    if remove:
        found = await session.client.tenants.change(tenant, TenantChange(ceilings=None))
    elif changes or reset:
        before = {} if found.ceilings is None else found.ceilings.model_dump(mode="json")
        kept = {name: value for name, value in before.items() if name not in (reset or ())}
        found = await session.client.tenants.change(tenant, TenantChange(ceilings=build(Ceilings, {**kept, **changes})))
    show_tenant(session, found)


@remote(app, "delete")
async def delete(
    session: Session,
    tenant: TenantArgument,
    confirm: Annotated[str, typer.Option(help="The tenant's name, to confirm that all it has is to be deleted.")],
) -> None:
    """End a tenant, and delete all that it has: agents, conversations, files, keys."""
    ended = await session.client.tenants.end(tenant, confirm=confirm)
    if session.out.json:
        session.out.document(ended)
    else:
        session.out.text(f"ended {ended.id}; what it has is deleted within minutes")


def _row(tenant: TenantView) -> tuple[str, ...]:
    return tenant.id, tenant.name, tenant.state, tenant.timezone, stamp(tenant.created_at)
