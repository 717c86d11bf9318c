"""`nova audit`: what keys and agents changed."""

from datetime import UTC, datetime, timedelta
from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import Column, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.http.overview.audit import AuditEventView

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_COLUMNS: tuple[Column, ...] = ("at", ("who", "text"), "action", ("thing", "text"), ("fields", "spare"), "from")


@remote(app, "audit")
async def audit(
    session: Session,
    actor: Annotated[str | None, typer.Option(help="Only what this key or agent did: its id.")] = None,
    action: Annotated[str | None, typer.Option(help="Only this, such as agent.updated.")] = None,
    kind: Annotated[str | None, typer.Option(help="Only things of this kind, such as agent.")] = None,
    target: Annotated[str | None, typer.Option(help="Only the things with this id.")] = None,
    days: Annotated[float | None, typer.Option(min=0.0, max=3_650.0, help="Only the last days.")] = None,
    tenant: Annotated[str | None, typer.Option(help="Another tenant's log; needs the scope operator.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """Show what keys and agents changed, newest first: who, what, which thing, and from where."""
    page = await session.client.audit.list(
        actor=actor,
        action=action,
        target_kind=kind,
        target=target,
        since=None if days is None else datetime.now(UTC) - timedelta(days=days),
        tenant=tenant,
        limit=limit,
        cursor=cursor,
    )
    show_page(session.out, page, _COLUMNS, _row, nothing="Nothing was changed.")


def _row(event: AuditEventView) -> tuple[str, ...]:
    actor = f"{event.actor_name} ({event.actor_id})" if event.actor_name else event.actor_id
    return (
        stamp(event.at),
        f"{event.actor_kind} {actor}",
        event.action,
        event.target_id,
        ", ".join(event.fields),
        event.address or event.run_id or "",
    )
