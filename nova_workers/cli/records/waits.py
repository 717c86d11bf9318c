"""`nova waits`: what runs wait for, and how to answer."""

import typer

from nova_workers.cli.resources import Filter, listing
from nova_workers.cli.talk.answers import choices
from nova_workers.cli.terminal.output import short
from nova_workers.cli.terminal.paging import Column, Rows
from nova_workers.contracts.waits import (
    AskAgent,
    AskApproval,
    AskUser,
    AwaitOrchestration,
    CallClientTool,
    WaitKind,
    WaitView,
)

app = typer.Typer(add_completion=False, rich_markup_mode=None)


def _asks(wait: WaitView) -> str:
    request = wait.request
    if isinstance(request, AskUser):
        answers = choices(request.options, only_options=request.only_options, approval=False, lasting=False)
        return short(request.question, 200) + (f" [{answers}]" if answers else "")
    if isinstance(request, AskApproval | CallClientTool):
        return short(f"{request.tool_name} {request.params}", 200)
    if isinstance(request, AskAgent):
        return f"{request.agent_id}: {short(request.message, 150)}"
    if isinstance(request, AwaitOrchestration):
        return request.orchestration_id
    return "its time"


listing(
    app,
    "List what runs wait for, newest first. `nova runs answer` answers them.",
    lambda nova: nova.runs.waits,
    Rows[WaitView](
        "No run waits for a person.",
        Column("run", lambda wait: wait.run_id),
        Column("kind", lambda wait: wait.request.kind),
        Column("agent", lambda wait: wait.agent_id, "spare"),
        Column("asks", _asks, "fold"),
        Column("since", lambda wait: wait.created_at, "spare"),
        Column("until", lambda wait: wait.due_at, "spare"),
        Column("wait", lambda wait: wait.id, "spare"),
    ),
    name="waits",
    kind=Filter("Only these. Default: what a person answers.", WaitKind),
    agent=Filter("Only runs of this agent.", sent_as="agent_id"),
)
