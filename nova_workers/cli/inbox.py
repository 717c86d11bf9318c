"""`nova inbox`: what agents handed over beside their answers."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.output import Column, short, stamp
from nova_workers.cli.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.deliveries import DeliveryKind, DeliveryStatus, DeliveryView

__all__ = ["app", "describe"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_TEXT_CHARS = 400


@remote(app, "inbox")
async def inbox(
    session: Session,
    kind: Annotated[DeliveryKind | None, typer.Option(help="Only of this kind.")] = None,
    status: Annotated[DeliveryStatus | None, typer.Option(help="Only with this status.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only from this agent.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """Show notifications, files and shared notes of agents, newest first."""
    page = await session.client.deliveries.list(kind=kind, status=status, agent_id=agent, limit=limit, cursor=cursor)
    columns: tuple[Column, ...] = ("when", ("agent", "spare"), "kind", ("what", "fold"), ("status", "spare"))
    show_page(session.out, page, columns, _row, nothing="Nothing yet: no agent has sent you anything.")


def _row(delivery: DeliveryView) -> tuple[str, ...]:
    return (
        stamp(delivery.created_at),
        delivery.agent_id or "",
        delivery.kind,
        describe(delivery),
        delivery.status,
    )


def describe(delivery: DeliveryView) -> str:
    """Return what was handed over in one line, with the id that fetches it."""
    payload = delivery.payload
    match delivery.kind:
        case "notification":
            words = str(payload.get("text", ""))
        case "file":
            caption = f": {payload['caption']}" if payload.get("caption") else ""
            words = f"{payload.get('file_id')} {payload.get('name')}{caption}"
        case "note":
            words = f"{payload.get('note_id')} {payload.get('title')}"
        case "run_completed" | "test":
            words = str(payload.get("text", ""))
    return short(words, _TEXT_CHARS)
