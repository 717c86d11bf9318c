"""`nova inbox`: what agents handed over beside their answers."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import Column, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.deliveries import DeliveryKind, DeliveryStatus, DeliveryView

__all__ = ["app", "describe"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)

_TEXT_CHARS = 400
_QUESTION_CHARS = 150
_PARAMS_CHARS = 60


@remote(app, "inbox")
async def inbox(
    session: Session,
    kind: Annotated[DeliveryKind | None, typer.Option(help="Only of this kind.")] = None,
    status: Annotated[DeliveryStatus | None, typer.Option(help="Only with this status.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only from this agent.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """Show what agents send and ask: notifications, files, shared notes, questions and approvals, newest first."""
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
        case "question" | "approval":
            words = _question(delivery)
        case "run_completed" | "test":
            words = str(payload.get("text", ""))
    return short(words, _TEXT_CHARS)


def _question(delivery: DeliveryView) -> str:
    payload = delivery.payload
    words = short(str(payload.get("text", "")), _QUESTION_CHARS)
    if delivery.kind == "approval":
        words += f" {payload.get('tool_name')} {short(str(payload.get('params', '')), _PARAMS_CHARS)}"
        answer = "--approve"
    else:
        options = [str(option) for option in payload.get("options") or ()]
        words += f" [{' | '.join(options)}]" if options else ""
        answer = "TEXT"
    if delivery.status != "pending":
        return words
    return f"{words} → nova runs answer {delivery.run_id} {answer}"
