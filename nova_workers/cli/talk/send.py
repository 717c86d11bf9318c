"""`nova send`: send one message and stream the answer."""

import json
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Annotated, Any

import typer

from nova_workers.base.errors import InvalidInput
from nova_workers.base.vocabulary import ENDED_RUNS
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.talk.client_tools import LocalTools, read_tools
from nova_workers.cli.talk.follow import follow, on_interrupt, outcome_code, why_it_waits
from nova_workers.cli.talk.live import LiveView, cost_line, limit_line
from nova_workers.cli.talk.missing_worker import missing_worker_noted
from nova_workers.contracts.events import Usage, Waiting
from nova_workers.contracts.http.wire import OnBusy, RunQueue, RunView, StatelessRunCreate

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@remote(app, "send")
async def send(
    session: Session,
    message: Annotated[str, typer.Argument(help="The message; - reads it from stdin.")],
    thread: Annotated[str | None, typer.Option(help="Go on with this thread. Default: a new one.")] = None,
    agent: Annotated[str | None, typer.Option(help="The agent of a new thread. Default: nova.")] = None,
    on_busy: Annotated[OnBusy, typer.Option(help="When the thread has an active run.")] = "enqueue",
    model: Annotated[str | None, typer.Option(help="A model or an alias, for this run only.")] = None,
    queue: Annotated[RunQueue, typer.Option(help="The queue of its run.")] = "interactive",
    priority: Annotated[
        int | None, typer.Option(min=-100, max=100, help="Higher goes first among the tenant's runs. Default: 0.")
    ] = None,
    max_turns: Annotated[int | None, typer.Option(min=1, max=1000, help="Most model calls.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be repeated.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key again returns the first run.")] = None,
    wait: Annotated[
        bool | None,
        typer.Option("--wait/--no-wait", help="Print the whole answer at its end; or only the run. Default: stream."),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Start then, such as 2030-05-01T09:00+02:00. Prints the run, as --no-wait."),
    ] = None,
    ephemeral: Annotated[
        bool, typer.Option("--ephemeral", help="The new thread is in no list, and purged a day after its last use.")
    ] = False,
    tools: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Tools that this machine executes, as JSON. See docs/client-tools.md."),
    ] = None,
    instructions: Annotated[str | None, typer.Option(help="Added to the agent's instructions, for this run.")] = None,
    temperature: Annotated[float | None, typer.Option(min=0, max=1, help="For this run only.")] = None,
    max_output_tokens: Annotated[int | None, typer.Option(min=1, help="Most tokens of a response.")] = None,
    schema: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON schema that the answer of this run fulfils.")
    ] = None,
    tool_choice: Annotated[
        str | None, typer.Option(metavar="auto|none|required|NAME", help="Which tools the model may call first.")
    ] = None,
    native_tools: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Native tools that this run has, with commas; '' is none.")
    ] = None,
    reasoning: Annotated[bool, typer.Option("--reasoning", help="Show extended thinking.")] = False,
) -> None:
    """Send one message and stream the answer.

    The answer goes to stdout; tools, cost and time go to stderr. Ctrl-C cancels the run. In a pipe, a run that
    moves to another worker may repeat text since its last step: scripts use --wait or --json.
    """
    started_s = time.monotonic()
    view = LiveView(session.out, reasoning=reasoning)
    own_tools = () if tools is None else read_tools(tools)
    fields = given(
        message=read_message(message),
        thread_id=thread,
        agent_id=agent if thread else agent or "nova",
        on_busy=on_busy,
        model=model,
        max_turns=max_turns,
        queue=queue,
        priority=priority,
        start_at=at,
        ephemeral=ephemeral or None,
        metadata=parse_metadata(metadata or []),
        client_tools=[tool.model_dump(exclude={"command"}, exclude_unset=True) for tool in own_tools] or None,
        instructions=instructions,
        temperature=temperature,
        max_output_tokens=max_output_tokens,
        output_schema=None if schema is None else _read_schema(schema),
        tool_choice=_tool_choice(tool_choice),
        native_tools=None if native_tools is None else [name for name in native_tools.split(",") if name],
    )
    body = build(StatelessRunCreate, fields)
    if wait is False or (at is not None and wait is None):
        _show_accepted(session, await session.client.runs.create(body, idempotency_key=idempotency_key))
        return
    async with LocalTools.open(session, own_tools) as local, on_interrupt(session, view) as interrupt:
        run = await session.client.runs.create(body, idempotency_key=idempotency_key)
        interrupt.arm(run.id)
        if wait:
            async with missing_worker_noted(session, run.id, session.out.note):
                status = await _wait(session, run, started_s, local)
        else:
            if session.out.json:
                session.out.line({"type": "accepted", "run": run.model_dump(mode="json")})
            view.doing(why_it_waits(run))
            end = await follow(session, run.id, view, started_s=started_s, tools=local)
            status = "succeeded" if end is None else end.status
            if not thread and not session.out.json:
                session.out.note(f"thread {run.thread_id}")
    raise typer.Exit(outcome_code(status, interrupted=interrupt.pressed))


def parse_metadata(pairs: list[str]) -> dict[str, Any]:
    """Read ``NAME=VALUE`` pairs; a value that is JSON is taken as JSON.

    Raises:
        InvalidInput: A pair has no equals sign or no name.
    """
    found: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--metadata {pair!r} has no name; expected NAME=VALUE", field="metadata")
        try:
            found[name] = json.loads(value)
        except json.JSONDecodeError:
            found[name] = value
    return found


def read_message(message: str) -> str:
    """Return a message given on the command line, or on stdin.

    Raises:
        InvalidInput: It is empty or not UTF-8.
    """
    if message != "-":
        text = message
    else:
        try:
            text = sys.stdin.buffer.read().decode("utf-8")
        except UnicodeDecodeError as error:
            raise InvalidInput(f"The message on stdin is not UTF-8 ({error}).", field="message") from error
    if not text.strip():
        raise InvalidInput("The message is empty. Give some text, or pipe it in and give - as the message.")
    return text


def _read_schema(path: Path) -> Any:
    try:
        return json.loads(path.read_bytes())
    except OSError as error:
        raise InvalidInput(f"--schema {path}: {error.strerror}.", field="schema") from error
    except ValueError as error:
        raise InvalidInput(f"--schema {path} is no JSON: {error}.", field="schema") from error


def _tool_choice(given: str | None) -> str | dict[str, str] | None:
    return given if given in (None, "auto", "none", "required") else {"name": given}


def _show_accepted(session: Session, run: RunView) -> None:
    if session.out.json:
        session.out.document(run)
        return
    session.out.text(run.id)
    session.out.note(f"{why_it_waits(run)}; thread {run.thread_id}; follow it with `nova runs tail {run.id}`")


async def _wait(session: Session, run: RunView, started_s: float, tools: LocalTools) -> str:
    shown: set[str] = set()
    while run.status not in ENDED_RUNS:
        run = await session.client.runs.result(run.id)
        asked = [wait for wait in run.waits if wait.request.kind in ("user", "approval") and wait.id not in shown]
        for wait in asked:
            shown.add(wait.id)
            session.out.note(
                f"⏸ waits for {run.waiting_for}; see `nova waits`, answer with `nova runs answer {run.id}`"
            )
        if run.status == "waiting":
            # The API answers at once while the run waits for a person; its events show when it continues.
            await _until_it_ends(session, run, tools)
    if run.status == "merged" and run.merged_into:
        # The answer is in the run that it was merged into.
        return await _wait(session, await session.client.runs.get(run.merged_into), started_s, tools)
    return _show_result(session, run, started_s)


async def _until_it_ends(session: Session, run: RunView, tools: LocalTools) -> None:
    tools.take_all(run)
    async with aclosing(session.client.runs.events(run.id)) as events:
        async for _, event in events:
            if isinstance(event, Waiting):
                tools.take(run.id, event)


def _show_result(session: Session, run: RunView, started_s: float) -> str:
    if session.out.json:
        session.out.document(run)
        return run.status
    if run.text:
        session.out.text(run.text)
    if run.error is not None:
        session.out.note(f"✗ {run.error.kind}: {run.error.message}", "red")
    if run.limit_reached is not None:
        session.out.note(limit_line(run.limit_reached), "yellow")
    usage = None
    if run.usage is not None:
        usage = Usage(**run.usage.model_dump())
    line = cost_line(usage, seconds=time.monotonic() - started_s, run_id=run.id)
    session.out.note(line if run.status == "succeeded" else f"{run.status} · {line}")
    return run.status
