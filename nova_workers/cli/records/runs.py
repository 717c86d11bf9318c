"""`nova runs`: list, follow, edit, cancel and retry runs; say why one does not move, and move it."""

import json
from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from nova_workers.base.errors import EngineErrorKind, InvalidInput
from nova_workers.base.vocabulary import OPEN_RUNS, OpenRunStatus
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.records.run_options import RunOptions, query_of
from nova_workers.cli.resources import Argument, action, deletion, group
from nova_workers.cli.talk.follow import follow, outcome_code, took_s
from nova_workers.cli.talk.live import LiveView, limit_line
from nova_workers.cli.talk.send import read_message
from nova_workers.cli.terminal.new_file import new_file
from nova_workers.cli.terminal.output import Facts, Output, age, money, short
from nova_workers.cli.terminal.paging import Column, CursorOption, LimitOption, Rows, show_page
from nova_workers.contracts.content import ContentBlock, text_of
from nova_workers.contracts.events import EventCursor
from nova_workers.contracts.http.feedback import RATING, FeedbackGive
from nova_workers.contracts.http.overview.requests import ModelRequestView
from nova_workers.contracts.http.reasons import RunFail, RunReasons
from nova_workers.contracts.http.wire import BulkCancel, BulkRetry, RunEdit, RunView
from nova_workers.contracts.waits import RunAnswer, ToolResult, ToolResults

app = group("List, follow, edit, cancel and retry runs; see why one does not move.")

RunArgument = Annotated[str, typer.Argument(help="The run's id.")]


def _losses(run: RunView) -> str:
    lost = f"lost {run.losses} {'worker' if run.losses == 1 else 'workers'} since its last step"
    return f"{lost}: suspect, executes in a process of its own" if run.suspect else lost


def _facts(run: RunView) -> Facts:
    usage, hold = run.usage, run.hold
    return (
        ("id", run.id),
        ("status", run.status + (f" ({run.stop_reason})" if run.stop_reason else "")),
        ("why", run.waiting_for),
        ("provider", hold.message if hold else None),
        ("what helps", hold.advice if hold else None),
        ("next try", hold.next_try_at if hold else None),
        ("limit", limit_line(run.limit_reached) if run.limit_reached else None),
        ("starts at", run.start_at),
        ("position", run.position),
        ("error", f"{run.error.kind}: {run.error.message}" if run.error else None),
        ("thread", run.thread_id),
        ("agent", run.agent_id + (f" version {run.agent_version}" if run.agent_version else "")),
        ("turn", run.turn_id),
        ("joined", run.merged_into),
        ("attempt", str(run.attempt) + (f", {_losses(run)}" if run.losses else "")),
        ("queue", run.queue),
        ("source", run.source),
        ("cancel asked", run.cancel_requested_at),
        ("created", run.created_at),
        ("started", run.started_at),
        ("took", age(took_s(run))),
        (
            "tokens",
            f"{usage.input_tokens:,} in, {usage.output_tokens:,} out, {money(usage.cost_usd)}" if usage else None,
        ),
        ("metadata", json.dumps(run.metadata) if run.metadata else None),
        ("message", text_of(tuple(run.message))),
        ("text", run.text),
        ("output", None if run.output is None else json.dumps(run.output, ensure_ascii=False)),
    )


def _message(run: RunView) -> str:
    return short(text_of(tuple(run.message)) or f"[{run.message[0].get('type')}]" if run.message else "")


def _cost(run: RunView) -> str | None:
    return None if run.usage is None or run.usage.cost_usd is None else money(run.usage.cost_usd)


_ROWS = Rows[RunView](
    "No runs.",
    Column("id", lambda run: run.id),
    Column("status", lambda run: run.status),
    Column("agent", lambda run: run.agent_id),
    Column("message", _message, "text"),
    Column("created", lambda run: run.created_at, "spare"),
    Column("took", lambda run: age(took_s(run)), "spare"),
    Column("cost", _cost, "spare"),
)
SavedOption = Annotated[str | None, typer.Option(help="Those of a list that you saved, by name; options change it.")]


@remote(app, "list")
async def list_runs(
    session: Session,
    which: RunOptions,
    saved: SavedOption = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """List runs, newest first, or sorted by another value of the newest 10,000 that match."""
    query = await query_of(session.client, replace(which, metadata=None), saved)
    filters = query.parameters(datetime.now(UTC)) | given(metadata=which.metadata or None)
    show_page(session.out, await session.client.runs.list(**filters, limit=limit, cursor=cursor), _ROWS)


@remote(app, "csv")
async def csv(
    session: Session,
    which: RunOptions,
    saved: SavedOption = None,
    to: Annotated[Path | None, typer.Option(metavar="FILE", help="A new file; else standard output.")] = None,
) -> None:
    """Write runs as CSV for spreadsheets, at most 10,000, in the order of the list."""
    pieces = session.client.runs.csv(await query_of(session.client, which, saved))
    async with aclosing(pieces):
        if to is None:
            async for piece in pieces:
                session.out.stdout.write(piece)
            return
        with new_file(to) as opened:
            async for piece in pieces:
                opened.write(piece)
    session.out.done({"file": str(to)}, f"The runs are in {to}.")


action(app, "show", "Show a run.", Argument("run", RunArgument), lambda nova, run: nova.runs.get(run), _facts)


def show_request(out: Output, request: ModelRequestView) -> None:
    """Write what a model call was asked with."""
    if request.wire == "not_given":
        out.note("The engine does not make its requests itself: only the conversation is known.")
    elif request.wire == "not_recorded":
        out.note("The prompt, the tools and the parameters of this call are not recorded.")
    for section in request.system:
        out.text(f"{section.tag or 'Engine'} · {section.tokens:,} tokens", style="bold")
        out.text(f"{section.text}\n")
    if request.tools:
        out.text(f"Tools · {request.tools_tokens:,} tokens", style="bold")
        out.text("".join(f"{tool.name} · {tool.tokens:,}\n" for tool in request.tools))
    if request.next_cursor is not None:
        out.note(f"The newest {len(request.messages)} of {request.message_count} messages; --json has the cursor.")
    for message in (*reversed(request.messages), *request.response):
        is_answer = message.index >= request.message_count
        out.text(f"{message.role} · {'response' if is_answer else f'{message.tokens:,} tokens'}", style="bold")
        out.text("".join(f"{_block(block)}\n" for block in message.content))


def _block(block: ContentBlock) -> str:
    return str(block["text"]) if block.get("type") == "text" else json.dumps(block, ensure_ascii=False)


@remote(app, "request")
async def request(
    session: Session,
    run: RunArgument,
    step: Annotated[int, typer.Argument(min=1, help="The step, from 1.")] = 1,
) -> None:
    """Show what the model was asked with in a step. Needs a key with the scope `prompts`."""
    asked = await session.client.runs.request(run, step - 1)
    session.out.write(asked, show_request)


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
        session.out.record(await session.client.runs.cancel(runs[0]), _facts)
        return
    named = given(run_ids=runs or None, thread_id=thread, agent_id=agent, status=status)
    if not named and not everything:
        raise InvalidInput("Which runs? Give ids, --thread, --agent, --status or --all.")
    canceled = running = 0
    # `--all` cancels each state in turn, since the API needs at least one condition. Running ones last: the end of a
    # child would requeue its waiting parent, behind the pass over queued runs.
    states = sorted(OPEN_RUNS, key=lambda state: state == "running")
    for which in [named] if named else [{"status": state} for state in states]:
        done = await session.client.runs.cancel_all(build(BulkCancel, which))
        canceled, running = canceled + done.canceled, running + done.requested
    session.out.done(
        {"canceled": canceled, "requested": running},
        f"canceled {canceled} queued or waiting; {running} running, which stop in a moment",
    )


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
        session.out.record(await session.client.runs.retry(runs[0]), _facts)
        return
    named = given(run_ids=runs or None, thread_id=thread, agent_id=agent, error_kind=error, since=since)
    if not named:
        raise InvalidInput("Which runs? Give ids, --thread, --agent, --error or --since.")
    done = await session.client.runs.retry_all(build(BulkRetry, {**named, "dry_run": dry_run}))
    skipped = "".join(f"; {count} skipped: {why.replace('_', ' ')}" for why, count in done.skipped.items())
    session.out.done(done, f"{'would retry' if dry_run else 'retried'} {done.retried}{skipped}")


@remote(app, "why")
async def why(session: Session, run: RunArgument) -> None:
    """Show every reason why a run has not moved, and what helps."""
    session.out.write(await session.client.runs.reasons(run), _show_reasons)


def _show_reasons(out: Output, view: RunReasons) -> None:
    out.note(f"{view.run_id} is {view.status}")
    out.table(
        ("reason", "since", "until", ("what", "fold")),
        [(reason.kind.replace("_", " "), reason.since, reason.until, reason.text) for reason in view.reasons],
    )


action(
    app,
    "kick",
    "Look after a queued or waiting run now: ring for it, try its provider, end what is due.",
    Argument("run", RunArgument),
    lambda nova, run: nova.runs.kick(run),
    _facts,
)
action(
    app,
    "requeue",
    "Take a running run back from a worker whose lease has expired.",
    Argument("run", RunArgument),
    lambda nova, run: nova.runs.requeue(run),
    _facts,
)


@remote(app, "fail")
async def fail(
    session: Session,
    run: RunArgument,
    reason: Annotated[str, typer.Option(help="Why; becomes a part of its error.")],
) -> None:
    """Let a run that had begun, and that no worker holds, end as failed, so that what waits for it goes on."""
    session.out.record(await session.client.runs.fail(run, build(RunFail, {"reason": reason})), _facts)


@remote(app, "result")
async def result(
    session: Session,
    run: Annotated[str, typer.Argument(help="The run.")],
    call: Annotated[str, typer.Argument(help="The call of a tool of its caller; `nova runs show` lists them.")],
    text: Annotated[str, typer.Argument(help="The result; - reads it from stdin.")],
    failed: Annotated[bool, typer.Option("--failed", help="The tool failed, and the text says why.")] = False,
) -> None:
    """Give a run the result of a tool that its caller executes."""
    results = [ToolResult(tool_call_id=call, content=read_message(text), is_error=failed)]
    session.out.record(await session.client.runs.give_results(run, ToolResults(results=results)), _facts)


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
    body = build(RunAnswer, given(text=text, approve=approve, remember=always or None, wait_id=wait))
    session.out.record(await session.client.runs.answer(run, body), _facts)


@remote(app, "rate")
async def rate(
    session: Session,
    run: RunArgument,
    score: Annotated[float | None, typer.Option(min=-1, max=1, help="From -1 (bad) to 1 (good).")] = None,
    label: Annotated[str | None, typer.Option(help="A word for it, such as too-long.")] = None,
    comment: Annotated[str | None, typer.Option(help="What is good or bad about it.")] = None,
    name: Annotated[str, typer.Option(help="What is judged.")] = RATING,
    step: Annotated[int | None, typer.Option(min=1, help="Only this step, from 1; else the whole run.")] = None,
    author: Annotated[str | None, typer.Option(help="Whose opinion it is, if the key speaks for several.")] = None,
) -> None:
    """Give feedback on a run. It replaces what you gave before under the same name."""
    index = None if step is None else step - 1
    fields = given(score=score, label=label, comment=comment, step=index, author=author)
    feedback = await session.client.feedback.give(run, build(FeedbackGive, {"name": name, **fields}))
    version = f" version {feedback.agent_version}" if feedback.agent_version else ""
    session.out.done(feedback, f"{feedback.id} on {feedback.agent_id}{version}")


@remote(app, "edit")
async def edit(
    session: Session, run: RunArgument, message: Annotated[str, typer.Argument(help="The new message.")]
) -> None:
    """Replace the message of a run that is still queued."""
    session.out.record(await session.client.runs.edit(run, build(RunEdit, {"message": message})), _facts)


deletion(
    app,
    "Remove runs that are still queued.",
    "runs: Ids of queued runs.",
    lambda nova: nova.runs.withdraw,
    name="withdraw",
    done="withdrawn",
)
