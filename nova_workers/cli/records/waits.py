"""`nova waits`: what runs wait for, and how to answer."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, remote
from nova_workers.cli.talk.answers import choices
from nova_workers.cli.terminal.output import Column, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.waits import AskAgent, AskApproval, AskUser, AwaitOrchestration, WaitKind, WaitView

__all__ = ["app"]

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@remote(app, "waits")
async def waits(
    session: Session,
    kind: Annotated[WaitKind | None, typer.Option(help="Only these. Default: what a person answers.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only runs of this agent.")] = None,
    limit: LimitOption = 20,
    cursor: CursorOption = None,
) -> None:
    """List what runs wait for, newest first. `nova runs answer` answers them."""
    page = await session.client.runs.waits(kind=kind, agent_id=agent, limit=limit, cursor=cursor)
    columns: tuple[Column, ...] = (
        *("run", "kind", ("agent", "spare"), ("asks", "fold")),
        *(("since", "spare"), ("until", "spare"), ("wait", "spare")),
    )
    show_page(session.out, page, columns, _row, nothing="No run waits for a person.")


def _row(wait: WaitView) -> tuple[str, ...]:
    return (
        wait.run_id,
        wait.request.kind,
        wait.agent_id,
        _asks(wait),
        stamp(wait.created_at),
        stamp(wait.due_at),
        wait.id,
    )


def _asks(wait: WaitView) -> str:
    request = wait.request
    if isinstance(request, AskUser):
        answers = choices(request.options, only_options=request.only_options, approval=False, lasting=False)
        return short(request.question, 200) + (f" [{answers}]" if answers else "")
    if isinstance(request, AskApproval):
        return short(f"{request.tool_name} {request.params}", 200)
    if isinstance(request, AskAgent):
        return f"{request.agent_id}: {short(request.message, 150)}"
    if isinstance(request, AwaitOrchestration):
        return request.orchestration_id
    return "its time"
