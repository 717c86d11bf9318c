"""`nova runs`: list, follow, edit, cancel and retry runs."""

import json
from typing import Annotated

import typer

from nova_workers.base.errors import EngineErrorKind, InvalidInput
from nova_workers.base.vocabulary import OPEN_RUNS, OpenRunStatus
from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.talk.follow import follow, outcome_code, took_s
from nova_workers.cli.talk.live import LiveView, limit_line
from nova_workers.cli.terminal.output import Column, age, money, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.content import text_of
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.wire import BulkCancel, BulkRetry, RunEdit, RunQueue, RunStatus, RunView
from nova_workers.contracts.waits import RunAnswer

__all__ = ["app"]

app = typer.Typer(
    no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="List, follow, edit, cancel and retry runs."
)

RunArgument = Annotated[str, typer.Argument(help="The run's id.")]


@remote(app, "list")
async def list_runs(
    session: Session,
    thread: Annotated[str | None, typer.Option(help="Only those of this thread.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only those of this agent.")] = None,
    status: Annotated[RunStatus | None, typer.Option(help="Only those in this state.")] = None,
    queue: Annotated[RunQueue | None, typer.Option(help="Only those in this queue.")] = None,
    limit: LimitOption = 20,
    cursor: CursorOption = None,
) -> None:
    """List runs, newest first."""
    page = await session.client.runs.list(
        thread_id=thread, agent_id=agent, status=status, queue=queue, limit=limit, cursor=cursor
    )
    columns: tuple[Column, ...] = (
        *("id", "status", "agent", ("message", "text")),
        *(("created", "spare"), ("took", "spare"), ("cost", "spare")),
    )
    show_page(session.out, page, columns, _row, nothing="No runs.")


@remote(app, "show")
async def show(session: Session, run: RunArgument) -> None:
    """Show a run."""
    _show(session, await session.client.runs.get(run))


@remote(app, "tail")
async def tail(
    session: Session,
    run: RunArgument,
    after: Annotated[str | None, typer.Option(help="Only events after this one, such as 1-42.")] = None,
    reasoning: Annotated[bool, typer.Option("--reasoning", help="Show extended thinking.")] = False,
) -> None:
    """Show a run's events from the first, and follow it to its end. Ctrl-C leaves; the run continues."""
    try:
        start = EventCursor.parse(after) if after else None
    except ValueError as error:
        raise InvalidInput(f"--after: {error}") from error
    view = LiveView(session.out, reasoning=reasoning, resumed=start is not None)
    end = await follow(session, run, view, after=start)
    raise typer.Exit(0 if end is None else outcome_code(end.status, interrupted=False))


@remote(app, "cancel")
async def cancel(
    session: Session,
    runs: Annotated[list[str] | None, typer.Argument(help="Ids of runs.")] = None,
    thread: Annotated[str | None, typer.Option(help="All open runs of this thread.")] = None,
    agent: Annotated[str | None, typer.Option(help="All open runs of this agent.")] = None,
    status: Annotated[OpenRunStatus | None, typer.Option(help="Only in this state.")] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every open run.")] = False,
) -> None:
    """Cancel runs. A running one stops in a moment and keeps its partial text."""
    if runs and len(runs) == 1 and not (thread or agent or status or everything):
        _show(session, await session.client.runs.cancel(runs[0]))
        return
    given = {"run_ids": runs or None, "thread_id": thread, "agent_id": agent, "status": status}
    named = {name: value for name, value in given.items() if value is not None}
    if not named and not everything:
        raise InvalidInput("Which runs? Give ids, --thread, --agent, --status or --all.")
    canceled = running = 0
    # `--all` cancels each state in turn, since the API needs at least one condition. Running ones last: the end of a
    # child would requeue its waiting parent, behind the pass over queued runs.
    states = sorted(OPEN_RUNS, key=lambda state: state == "running")
    for which in [named] if named else [{"status": state} for state in states]:
        done = await session.client.runs.cancel_all(build(BulkCancel, which))
        canceled, running = canceled + done.canceled, running + done.requested
    if session.out.json:
        session.out.document({"canceled": canceled, "requested": running})
    else:
        session.out.text(f"canceled {canceled} queued or waiting; {running} running, which stop in a moment")


@remote(app, "retry")
async def retry(
    session: Session,
    runs: Annotated[list[str] | None, typer.Argument(help="Ids of failed runs.")] = None,
    thread: Annotated[str | None, typer.Option(help="The failed run of this thread.")] = None,
    agent: Annotated[str | None, typer.Option(help="All failed runs of this agent.")] = None,
    error: Annotated[
        EngineErrorKind | None, typer.Option(help="Only those that failed of this kind, such as auth_failure.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(help="Only those submitted at this time or later, such as 2026-05-01T09:00Z.")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Count them only.")] = False,
) -> None:
    """Try failed runs again: each continues after its last committed step, if its thread has not gone on."""
    if runs and len(runs) == 1 and not (thread or agent or error or since or dry_run):
        _show(session, await session.client.runs.retry(runs[0]))
        return
    given = {"run_ids": runs or None, "thread_id": thread, "agent_id": agent, "error_kind": error, "since": since}
    named = {name: value for name, value in given.items() if value is not None}
    if not named:
        raise InvalidInput("Which runs? Give ids, --thread, --agent, --error or --since.")
    done = await session.client.runs.retry_all(build(BulkRetry, {**named, "dry_run": dry_run}))
    if session.out.json:
        session.out.document(done)
        return
    skipped = "".join(f"; {count} skipped: {why.replace('_', ' ')}" for why, count in done.skipped.items())
    session.out.text(f"{'would retry' if dry_run else 'retried'} {done.retried}{skipped}")


@remote(app, "answer")
async def answer(
    session: Session,
    run: RunArgument,
    text: Annotated[str | None, typer.Argument(help="The answer to its question, or why a call is refused.")] = None,
    approve: Annotated[bool | None, typer.Option("--approve/--deny", help="Permit the call that it asks for.")] = None,
    always: Annotated[
        bool, typer.Option("--always", help="With --approve: permit it to all agents of the orchestration from now on.")
    ] = False,
    wait: Annotated[str | None, typer.Option(help="Which of several waits is meant; `nova waits` lists them.")] = None,
) -> None:
    """Answer a run that waits: a question with text, a call that needs permission with --approve or --deny."""
    if text is None and approve is None:
        raise InvalidInput("What is the answer? Give text, or --approve or --deny.", field="text")
    given = {"text": text, "approve": approve, "remember": always or None, "wait_id": wait}
    body = build(RunAnswer, {name: value for name, value in given.items() if value is not None})
    _show(session, await session.client.runs.answer(run, body))


@remote(app, "edit")
async def edit(
    session: Session, run: RunArgument, message: Annotated[str, typer.Argument(help="The new message.")]
) -> None:
    """Replace the message of a run that is still queued."""
    _show(session, await session.client.runs.edit(run, build(RunEdit, {"message": message})))


@remote(app, "withdraw")
async def withdraw(session: Session, runs: Annotated[list[str], typer.Argument(help="Ids of queued runs.")]) -> None:
    """Remove runs that are still queued."""
    for run in runs:
        await session.client.runs.withdraw(run)
        if not session.out.json:
            session.out.text(f"withdrew {run}")
    if session.out.json:
        session.out.document({"withdrawn": runs})


def _row(run: RunView) -> tuple[str, ...]:
    message = text_of(tuple(run.message)) or f"[{run.message[0].get('type')}]" if run.message else ""
    cost = money(run.usage.cost_usd) if run.usage and run.usage.cost_usd is not None else ""
    return (run.id, run.status, run.agent_id, short(message), stamp(run.created_at), age(took_s(run)), cost)


def _losses(run: RunView) -> str:
    lost = f"lost {run.losses} {'worker' if run.losses == 1 else 'workers'} since its last step"
    return f"{lost}: suspect, executes in a process of its own" if run.suspect else lost


def _show(session: Session, run: RunView) -> None:
    if session.out.json:
        session.out.document(run)
        return
    usage = run.usage
    tokens = f"{usage.input_tokens:,} in, {usage.output_tokens:,} out, {money(usage.cost_usd)}" if usage else ""
    session.out.facts(
        (
            ("id", run.id),
            ("status", run.status + (f" ({run.stop_reason})" if run.stop_reason else "")),
            ("why", run.waiting_for or ""),
            ("provider", run.hold.message if run.hold else ""),
            ("what helps", run.hold.advice if run.hold else ""),
            ("next try", stamp(run.hold.next_try_at) if run.hold else ""),
            ("limit", limit_line(run.limit_reached) if run.limit_reached else ""),
            ("starts at", stamp(run.start_at)),
            ("position", "" if run.position is None else str(run.position)),
            ("error", f"{run.error.kind}: {run.error.message}" if run.error else ""),
            ("thread", run.thread_id),
            ("agent", run.agent_id + (f" version {run.agent_version}" if run.agent_version else "")),
            ("turn", run.turn_id or ""),
            ("joined", run.merged_into or ""),
            ("attempt", str(run.attempt) + (f", {_losses(run)}" if run.losses else "")),
            ("queue", run.queue),
            ("source", run.source),
            ("cancel asked", stamp(run.cancel_requested_at)),
            ("created", stamp(run.created_at)),
            ("started", stamp(run.started_at)),
            ("took", age(took_s(run))),
            ("tokens", tokens),
            ("metadata", json.dumps(run.metadata) if run.metadata else ""),
            ("message", text_of(tuple(run.message))),
            ("text", run.text or ""),
            ("output", "" if run.output is None else json.dumps(run.output, ensure_ascii=False)),
        )
    )
