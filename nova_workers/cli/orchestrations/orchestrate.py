"""`nova orchestrate`: give a task to a tree of agents, and watch them work."""

from typing import Annotated

import typer

from nova_workers.base.vocabulary import RunQueue
from nova_workers.cli.command import Session, build, given, remote
from nova_workers.cli.orchestrations.watching import watch
from nova_workers.cli.talk.send import parse_metadata, read_message
from nova_workers.contracts.http.orchestrations import OrchestrationCreate

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@remote(app, "orchestrate")
async def orchestrate(
    session: Session,
    task: Annotated[str, typer.Argument(help="The task; - reads it from stdin.")],
    agent: Annotated[str | None, typer.Option(help="The agent that bounds the tree. Default: nova.")] = None,
    model: Annotated[str | None, typer.Option(help="The master's model, or an alias.")] = None,
    cwd: Annotated[str | None, typer.Option(help="Working directory, within the agent's directories.")] = None,
    token_budget: Annotated[int | None, typer.Option(min=1, help="Tokens of all agents together.")] = None,
    cost_budget: Annotated[float | None, typer.Option(metavar="USD", help="Cost of all agents together.")] = None,
    time_budget: Annotated[float | None, typer.Option(metavar="SECONDS", help="Time until the master's end.")] = None,
    queue: Annotated[RunQueue | None, typer.Option(help="The queue of the agents' runs. Default: interactive.")] = None,
    metadata: Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help="May be repeated.")] = None,
    idempotency_key: Annotated[str | None, typer.Option(help="The same key again starts no other.")] = None,
    detach: Annotated[bool, typer.Option("--detach", help="Print the id, and do not wait.")] = False,
) -> None:
    """Give a task to a tree of agents, and watch it to its end.

    A terminal shows the tree; a pipe gets a line per event on stderr. The summary goes to stdout. Ctrl-C detaches; a
    second one within two seconds kills the orchestration.
    """
    options = given(
        task=read_message(task),
        agent_id=agent,
        model=model,
        cwd=cwd,
        token_budget=token_budget,
        cost_budget_usd=cost_budget,
        time_budget_s=time_budget,
        queue=queue,
        metadata=parse_metadata(metadata or []) or None,
    )
    body = build(OrchestrationCreate, options)
    view = await session.client.orchestrations.start(body, idempotency_key=idempotency_key)
    if not detach:
        raise typer.Exit(await watch(session, view.id))
    session.out.done(view, view.id, about=f"follow it with `nova orchestrations tree {view.id} --follow`")
