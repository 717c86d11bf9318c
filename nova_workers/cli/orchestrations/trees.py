"""`nova orchestrations list|show|tree|messages|continue|complete|prompt|kill`: orchestrations as the fleet has them."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, build, remote
from nova_workers.cli.orchestrations.tree_view import TreeView
from nova_workers.cli.orchestrations.watching import watch
from nova_workers.cli.terminal.output import money, short, stamp
from nova_workers.cli.terminal.paging import CursorOption, LimitOption, show_page
from nova_workers.contracts.http.orchestrations import (
    AgentKill,
    AgentPrompt,
    MasterComplete,
    OrchestrationContinue,
    OrchestrationMessageView,
    OrchestrationView,
)

__all__ = ["app"]

IdArgument = Annotated[str, typer.Argument(metavar="ORCHESTRATION", help="The id.")]
FollowOption = Annotated[bool, typer.Option("--follow", help="Watch it to its end.")]


app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    help="Agents that run agents: see and change them, their configuration and models.",
)


@remote(app, "list")
async def list_orchestrations(
    session: Session,
    open: Annotated[bool | None, typer.Option("--open/--ended", help="Only these. Default: both.")] = None,
    agent: Annotated[str | None, typer.Option(help="Only of this agent.")] = None,
    limit: LimitOption = 50,
    cursor: CursorOption = None,
) -> None:
    """List orchestrations, newest first."""
    page = await session.client.orchestrations.list(open=open, agent_id=agent, limit=limit, cursor=cursor)
    show_page(
        session.out, page, ("id", "state", "agents", "cost", "started", "task"), _row, nothing="No orchestrations."
    )


@remote(app, "show")
async def show(session: Session, orchestration: IdArgument) -> None:
    """Show an orchestration: state, result, usage, limits, and who waits for whom."""
    _show(session, await session.client.orchestrations.get(orchestration))


@remote(app, "tree")
async def tree(session: Session, orchestration: IdArgument, follow: FollowOption = False) -> None:
    """Draw all agents of an orchestration: role, state, model, cost, progress, and who waits for whom."""
    if follow:
        raise typer.Exit(await watch(session, orchestration))
    found = await session.client.orchestrations.tree(orchestration)
    if session.out.json:
        session.out.document(found)
        return
    view = TreeView()
    view.seed(found)
    session.out.render(view.render(live=False))


@remote(app, "messages")
async def messages(
    session: Session, orchestration: IdArgument, limit: LimitOption = 50, cursor: CursorOption = None
) -> None:
    """List the messages between agents, oldest first."""
    page = await session.client.orchestrations.messages(orchestration, limit=limit, cursor=cursor)
    names = {agent.id: agent.name for agent in (await session.client.orchestrations.tree(orchestration)).agents}

    def row(message: OrchestrationMessageView) -> tuple[str, ...]:
        source = "-" if message.source_id is None else names.get(message.source_id, message.source_id)
        target = names.get(message.target_id, message.target_id)
        text = str(message.payload.get("text", ""))
        return stamp(message.created_at), source, target, message.type, short(text, 200)

    show_page(session.out, page, ("at", "from", "to", "type", "text"), row, nothing="No messages.")


@remote(app, "continue")
async def continue_(
    session: Session,
    orchestration: IdArgument,
    task: Annotated[str, typer.Argument(help="The follow-up task.")],
    follow: FollowOption = False,
) -> None:
    """Give an ended master a follow-up task. It keeps its conversation."""
    body = build(OrchestrationContinue, {"task": task})
    view = await session.client.orchestrations.continue_(orchestration, body)
    if follow:
        raise typer.Exit(await watch(session, view.id))
    _show(session, view)


@remote(app, "complete")
async def complete(
    session: Session,
    orchestration: IdArgument,
    summary: Annotated[str, typer.Argument(help="The result.")],
) -> None:
    """End an orchestration that a program outside of the fleet leads, with its result."""
    body = build(MasterComplete, {"summary": summary})
    _show(session, await session.client.orchestrations.complete(orchestration, body))


@remote(app, "prompt")
async def prompt(
    session: Session,
    orchestration: IdArgument,
    agent: Annotated[str, typer.Argument(help="The agent's id, or a unique part of it.")],
    text: Annotated[str, typer.Argument(help="The message.")],
) -> None:
    """Send an agent a message: it ends its wait for messages, or restarts an ended master."""
    body = build(AgentPrompt, {"text": text})
    _show(session, await session.client.orchestrations.prompt(orchestration, agent, body))


@remote(app, "kill")
async def kill(
    session: Session,
    orchestration: IdArgument,
    agent: Annotated[str | None, typer.Option(help="Only this agent and all below it: an id, or a part of it.")] = None,
    reason: Annotated[str | None, typer.Option(help="For the record.")] = None,
) -> None:
    """Kill an orchestration, or one of its agents with all below it. Partial output is kept."""
    given = {"agent_id": agent, "reason": reason}
    body = build(AgentKill, {name: value for name, value in given.items() if value is not None})
    _show(session, await session.client.orchestrations.kill(orchestration, body))


def _row(view: OrchestrationView) -> tuple[str, ...]:
    agents = str(sum(view.agents.values()))
    return view.id, view.state, agents, money(view.usage.cost_usd), stamp(view.created_at), short(view.task)


def _show(session: Session, view: OrchestrationView) -> None:
    if session.out.json:
        session.out.document(view)
        return
    limits = view.limits.model_dump(exclude_none=True)
    tokens = view.usage.input_tokens + view.usage.output_tokens
    session.out.facts(
        (
            ("id", view.id),
            ("state", view.state),
            ("error", f"{view.error.code}: {view.error.message}" if view.error else ""),
            ("agent", view.agent_id),
            ("model", view.model or ""),
            ("agents", ", ".join(f"{count} {state}" for state, count in sorted(view.agents.items()))),
            ("waits", "\n".join(f"{each.name} for {', '.join(each.waits_for) or 'anyone'}" for each in view.waiting)),
            ("used", f"{tokens:,} tokens, {money(view.usage.cost_usd)}"),
            ("limits", ", ".join(f"{name} {value:g}" for name, value in limits.items())),
            ("started", stamp(view.created_at)),
            ("ended", stamp(view.finished_at)),
            ("thread", view.thread_id),
            ("task", short(view.task, 500)),
            ("summary", view.summary or ""),
        )
    )
