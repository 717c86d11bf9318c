"""`nova inbox`: what agents send and ask outside their answers."""

from typing import Annotated

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, remote
from nova_workers.cli.resources import end_each, group
from nova_workers.cli.terminal.output import short
from nova_workers.cli.terminal.paging import Column, CursorOption, LimitOption, Rows, show_page
from nova_workers.client import iterate
from nova_workers.contracts.deliveries import DeliveryKind, DeliveryStatus, DeliveryView

_CLOSABLE: tuple[DeliveryKind, ...] = ("notification", "file", "note")
_PAGE = 200

_TEXT_CHARS = 400
_QUESTION_CHARS = 150
_PARAMS_CHARS = 60


app = group("List and close what agents send and ask. Without a command: list.", lists=True)


@remote(app, "list")
async def list_items(
    session: Session,
    kind: Annotated[DeliveryKind | None, typer.Option(help="Only of this kind.")] = None,
    status: Annotated[DeliveryStatus | None, typer.Option(help="Only with this status. Default: pending.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also closed items.")] = False,
    closed: Annotated[bool, typer.Option("--closed", help="Only closed items.")] = False,
    agent: Annotated[str | None, typer.Option(help="Only from this agent.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """Show what agents send and ask: notifications, files, shared notes, questions and approvals, newest first."""
    if (status is not None) + every + closed > 1:
        raise InvalidInput("Give one of --status, --all and --closed.")
    wanted: DeliveryStatus | None = None if every else "closed" if closed else status or "pending"
    page = await session.client.deliveries.list(kind=kind, status=wanted, agent_id=agent, limit=limit, cursor=cursor)
    show_page(session.out, page, _ROWS)


@remote(app, "close")
async def close(
    session: Session,
    items: Annotated[list[str] | None, typer.Argument(help="Ids of notifications, files and notes.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them. Questions and approvals stay.")] = False,
) -> None:
    """Close items, so that they are listed with --all or --closed only. An answer closes a question."""
    if bool(items) == every:
        raise InvalidInput("Which items? Give ids, or --all.")
    await end_each(session, items or await _closable(session), session.client.deliveries.close, "closed")


async def _closable(session: Session) -> list[str]:
    """Return the ids of all open items that need no answer."""
    listed = session.client.deliveries.list
    return [item.id for kind in _CLOSABLE async for item in iterate(listed, kind=kind, status="pending", limit=_PAGE)]


def describe(delivery: DeliveryView) -> str:
    """Return a delivery in one line, with the id that fetches its content."""
    payload = delivery.payload
    match delivery.kind:
        case "notification":
            line = str(payload.get("text", ""))
        case "file":
            caption = f": {payload['caption']}" if payload.get("caption") else ""
            line = f"{payload.get('file_id')} {payload.get('name')}{caption}"
        case "note":
            line = f"{payload.get('note_id')} {payload.get('title')}"
        case "question" | "approval":
            line = _question(delivery)
        case "work_order_completed" | "work_order_review":
            line = f"{payload.get('trace_id')} {payload.get('policy_id')}"
        case "run_completed" | "test":
            line = str(payload.get("text", ""))
        case "audit_recorded":
            line = f"{len(payload.get('ids', ()))} records"
        case "feedback_given":
            line = f"{payload.get('name')} {payload.get('score')} {payload.get('comment') or ''}"
        case "task_changed" | "rollout_changed" | "score_drifted":
            line = str(payload.get("config") or payload.get("reason") or payload.get("status", ""))
    return short(line, _TEXT_CHARS)


def _question(delivery: DeliveryView) -> str:
    payload = delivery.payload
    line = short(str(payload.get("text", "")), _QUESTION_CHARS)
    if delivery.kind == "approval":
        line += f" {payload.get('tool_name')} {short(str(payload.get('params', '')), _PARAMS_CHARS)}"
        answer = "--approve"
    else:
        options = [str(option) for option in payload.get("options") or ()]
        line += f" [{' | '.join(options)}]" if options else ""
        answer = "TEXT"
    if delivery.status != "pending":
        return line
    return f"{line} → nova runs answer {delivery.run_id} {answer}"


_ROWS = Rows[DeliveryView](
    "Nothing here. --all shows closed items too.",
    Column("id", lambda delivery: delivery.id, "spare"),
    Column("when", lambda delivery: delivery.created_at),
    Column("agent", lambda delivery: delivery.agent_id, "spare"),
    Column("kind", lambda delivery: delivery.kind),
    Column("what", describe, "fold"),
    Column("status", lambda delivery: delivery.status),
)
