"""`nova inbox`: what agents send and ask outside their answers."""

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.command import Session, remote
from nova_workers.cli.terminal.output import Column, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.client import iterate
from nova_workers.contracts.deliveries import DeliveryKind, DeliveryStatus, DeliveryView

__all__ = ["app", "describe"]

_CLOSABLE: tuple[DeliveryKind, ...] = ("notification", "file", "note")
_PAGE = 200

_TEXT_CHARS = 400
_QUESTION_CHARS = 150
_PARAMS_CHARS = 60


class _ListByDefault(TyperGroup):
    """`nova inbox --kind note` is `nova inbox list --kind note`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the group's arguments, with `list` before options of its own."""
        return super().parse_args(ctx, _with_default(ctx, args))

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Return the command that the arguments name, or `list`."""
        return super().resolve_command(ctx, _with_default(ctx, args))


def _with_default(ctx: Any, args: list[str]) -> list[str]:
    if not args or (args[0].startswith("-") and args[0] not in ctx.help_option_names):
        return ["list", *args]
    return args


app = typer.Typer(
    cls=_ListByDefault,
    add_completion=False,
    rich_markup_mode=None,
    help="List and close what agents send and ask. Without a command: list.",
)


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
    columns: tuple[Column, ...] = (("id", "spare"), "when", ("agent", "spare"), "kind", ("what", "fold"), "status")
    show_page(session.out, page, columns, _row, nothing="Nothing here. --all shows closed items too.")


@remote(app, "close")
async def close(
    session: Session,
    items: Annotated[list[str] | None, typer.Argument(help="Ids of notifications, files and notes.")] = None,
    every: Annotated[bool, typer.Option("--all", help="All of them. Questions and approvals stay.")] = False,
) -> None:
    """Close items, so that they are listed with --all or --closed only. An answer closes a question."""
    if bool(items) == every:
        raise InvalidInput("Which items? Give ids, or --all.")
    ids = items or await _closable(session)
    for item in ids:
        await session.client.deliveries.close(item)
        if not session.out.json:
            session.out.text(f"closed {item}")
    if session.out.json:
        session.out.document({"closed": ids})


async def _closable(session: Session) -> list[str]:
    """Return the ids of all open items that need no answer."""
    listed = session.client.deliveries.list
    return [item.id for kind in _CLOSABLE async for item in iterate(listed, kind=kind, status="pending", limit=_PAGE)]


def _row(delivery: DeliveryView) -> tuple[str, ...]:
    return (
        delivery.id,
        stamp(delivery.created_at),
        delivery.agent_id or "",
        delivery.kind,
        describe(delivery),
        delivery.status,
    )


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
