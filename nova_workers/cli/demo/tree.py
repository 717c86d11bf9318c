"""The demo's orchestration: a master that gives two workers their parts, and sums up."""

import time
from contextlib import aclosing

from rich.console import Console
from rich.rule import Rule

from nova_workers.base.errors import Unavailable
from nova_workers.cli.demo.watch import ms_since
from nova_workers.cli.terminal.output import printable
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.orchestrations import OrchestrationCreate, OrchestrationTree, TreeAgent

_TASK = (
    "Prepare our release with two workers, one for each part, and sum up in two sentences: (1) write one sentence for "
    "the changelog; (2) write one sentence for the announcement."
)
_MOST_TOKENS = 300_000


async def show_tree(console: Console, client: NovaClient, agent_id: str) -> None:
    """Start an orchestration, follow it to its end, and show its agents.

    Raises:
        Unavailable: Its master, or one of its workers, did not complete the task.
    """
    console.print()
    console.print(Rule("An orchestration: an agent that runs agents", align="left", style="cyan"))
    console.print(f"[bold]you[/]  {_TASK}")
    began_s = time.monotonic()
    started = await client.orchestrations.start(
        OrchestrationCreate(task=_TASK, agent_id=agent_id, token_budget=_MOST_TOKENS)
    )
    async with aclosing(client.orchestrations.events(started.id)) as events:
        async for _ in events:
            pass
    took_ms = ms_since(began_s)
    tree = await client.orchestrations.tree(started.id)
    for agent in tree.agents:
        _show_agent(console, tree, agent)
    if any(agent.state != "COMPLETED" for agent in tree.agents) or len(tree.agents) < 3:
        states = ", ".join(f"{agent.name} {agent.state}" for agent in tree.agents)
        raise Unavailable(f"Orchestration {started.id} did not end as it should: {states}.")
    console.print(f"     {len(tree.agents)} agents · done after {took_ms:.0f} ms", style="dim")


def _show_agent(console: Console, tree: OrchestrationTree, agent: TreeAgent) -> None:
    last = [each.id for each in tree.agents if each.parent_id == agent.parent_id][-1]
    branch = "" if agent.parent_id is None else "└─ " if agent.id == last else "├─ "
    mark = "✓" if agent.state == "COMPLETED" else "✗"
    text = agent.summary or (agent.error.message if agent.error else "")
    console.print(
        f"     {branch}{mark} {printable(agent.name)} ({agent.role.lower()}): {printable(' '.join(text.split()))}",
        style="green" if agent.state == "COMPLETED" else "red",
        markup=False,
    )
