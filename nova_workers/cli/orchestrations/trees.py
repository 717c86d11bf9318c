"""`nova orchestrations list|show|tree|messages|continue|complete|prompt|kill`: orchestrations as the fleet has them."""

from typing import Annotated

import typer

from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.orchestrations.tree_view import TreeView
from nova_workers.cli.orchestrations.watching import watch
from nova_workers.cli.resources import Argument, Filter, action, group, listing
from nova_workers.cli.terminal.output import Facts, Output, money, short
from nova_workers.cli.terminal.paging import Column, CursorOption, LimitOption, Rows, show_page
from nova_workers.contracts.http.orchestrations import (
    AgentKill,
    AgentPrompt,
    MasterComplete,
    OrchestrationContinue,
    OrchestrationMessageView,
    OrchestrationTree,
    OrchestrationView,
)

IdArgument = Annotated[str, typer.Argument(metavar="ORCHESTRATION", help="The id.")]
FollowOption = Annotated[bool, typer.Option("--follow", help="Watch it to its end.")]


app = group("Agents that run agents: see and change them, their configuration and models.")


def _facts(view: OrchestrationView) -> Facts:
    limits = view.limits.model_dump(exclude_none=True)
    tokens = view.usage.input_tokens + view.usage.output_tokens
    return (
        ("id", view.id),
        ("state", view.state),
        ("error", f"{view.error.code}: {view.error.message}" if view.error else None),
        ("agent", view.agent_id),
        ("model", view.model),
        ("agents", ", ".join(f"{count} {state}" for state, count in sorted(view.agents.items()))),
        ("waits", "\n".join(f"{each.name} for {', '.join(each.waits_for) or 'anyone'}" for each in view.waiting)),
        ("used", f"{tokens:,} tokens, {money(view.usage.cost_usd)}"),
        ("limits", ", ".join(f"{name} {value:g}" for name, value in limits.items())),
        ("started", view.created_at),
        ("ended", view.finished_at),
        ("thread", view.thread_id),
        ("task", short(view.task, 500)),
        ("summary", view.summary),
    )


listing(
    app,
    "List orchestrations, newest first.",
    lambda nova: nova.orchestrations.list,
    Rows[OrchestrationView](
        "No orchestrations.",
        Column("id", lambda view: view.id),
        Column("state", lambda view: view.state),
        Column("agents", lambda view: sum(view.agents.values())),
        Column("cost", lambda view: money(view.usage.cost_usd)),
        Column("started", lambda view: view.created_at),
        Column("task", lambda view: short(view.task)),
    ),
    open=Filter("Only these. Default: both.", bool, names=("--open/--ended",)),
    agent=Filter("Only of this agent.", sent_as="agent_id"),
)
action(
    app,
    "show",
    "Show an orchestration: state, result, usage, limits, and who waits for whom.",
    Argument("orchestration", IdArgument),
    lambda nova, orchestration: nova.orchestrations.get(orchestration),
    _facts,
)


@remote(app, "tree")
async def tree(session: Session, orchestration: IdArgument, follow: FollowOption = False) -> None:
    """Draw all agents of an orchestration: role, state, model, cost, progress, and who waits for whom."""
    if follow:
        raise typer.Exit(await watch(session, orchestration))
    session.out.write(await session.client.orchestrations.tree(orchestration), _draw)


def _draw(out: Output, found: OrchestrationTree) -> None:
    view = TreeView()
    view.seed(found)
    out.render(view.render(live=False))


@remote(app, "messages")
async def messages(
    session: Session, orchestration: IdArgument, limit: LimitOption = 50, cursor: CursorOption = None
) -> None:
    """List the messages between agents, oldest first."""
    page = await session.client.orchestrations.messages(orchestration, limit=limit, cursor=cursor)
    names = {agent.id: agent.name for agent in (await session.client.orchestrations.tree(orchestration)).agents}

    rows = Rows[OrchestrationMessageView](
        "No messages.",
        Column("at", lambda message: message.created_at),
        Column(
            "from",
            lambda message: "-" if message.source_id is None else names.get(message.source_id, message.source_id),
        ),
        Column("to", lambda message: names.get(message.target_id, message.target_id)),
        Column("type", lambda message: message.type),
        Column("text", lambda message: short(str(message.payload.get("text", "")), 200)),
    )
    show_page(session.out, page, rows)


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
    session.out.record(view, _facts)


@remote(app, "complete")
async def complete(
    session: Session,
    orchestration: IdArgument,
    summary: Annotated[str, typer.Argument(help="The result.")],
) -> None:
    """End an orchestration that a program outside of the fleet leads, with its result."""
    body = build(MasterComplete, {"summary": summary})
    session.out.record(await session.client.orchestrations.complete(orchestration, body), _facts)


@remote(app, "prompt")
async def prompt(
    session: Session,
    orchestration: IdArgument,
    agent: Annotated[str, typer.Argument(help="The agent's id, or a unique part of it.")],
    text: Annotated[str, typer.Argument(help="The message.")],
) -> None:
    """Send an agent a message: it ends its wait for messages, or restarts an ended master."""
    body = build(AgentPrompt, {"text": text})
    session.out.record(await session.client.orchestrations.prompt(orchestration, agent, body), _facts)


@remote(app, "kill")
async def kill(
    session: Session,
    orchestration: IdArgument,
    agent: Annotated[str | None, typer.Option(help="Only this agent and all below it: an id, or a part of it.")] = None,
    reason: Annotated[str | None, typer.Option(help="For the record.")] = None,
) -> None:
    """Kill an orchestration, or one of its agents with all below it. Partial output is kept."""
    body = build(AgentKill, given(agent_id=agent, reason=reason))
    session.out.record(await session.client.orchestrations.kill(orchestration, body), _facts)
