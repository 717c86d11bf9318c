"""The demo's second half: work that a trigger or a task starts."""

import asyncio
import time
from datetime import UTC, datetime, timedelta

from rich.console import Console
from rich.rule import Rule

from nova_workers.base.errors import Unavailable
from nova_workers.cli.demo.watch import Watched, watch_run
from nova_workers.cli.terminal.output import printable
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.tasks import StepInput, TaskCreate
from nova_workers.contracts.http.triggers import TriggerCreate, TriggerFiringView

_TITLE = "Write the note for our release"
_HOW = "A small one, for a demonstration: decide all of it yourself, ask nobody, and use no other tools."
_STEPS = ("Choose a name for the release", "Write one sentence about it", "Read it once more")

_PROMPT = "It is time to get ready: when is our release day?"
_IN_S = 1.5
"""Rounded down to a second: it is due in half a second or more."""
_FIRES_S = 20.0
_POLL_S = 0.1


async def create_trigger(client: NovaClient, agent_id: str) -> str:
    """Create a trigger that is due soon, and return its id."""
    at = (datetime.now(UTC) + timedelta(seconds=_IN_S)).replace(microsecond=0)
    trigger = await client.triggers.create(
        TriggerCreate(agent_id=agent_id, kind="at", schedule=at.isoformat(), prompt=_PROMPT)
    )
    return trigger.id


async def show_trigger(console: Console, client: NovaClient, trigger_id: str) -> Watched:
    """Show the run that a trigger starts.

    Raises:
        Unavailable: It did not fire, or its run did not succeed.
    """
    console.print()
    console.print(Rule("A trigger: an agent that starts by the clock", align="left", style="cyan"))
    firing = await _fired(client, trigger_id)
    console.print(f"[bold]at {firing.scheduled_for:%H:%M:%S}[/] UTC  {_PROMPT}")
    if firing.run_id is None:
        raise Unavailable(f"Trigger {trigger_id} did not fire: {firing.detail}")
    late_ms = (firing.fired_at - firing.scheduled_for).total_seconds() * 1_000
    watched = await watch_run(console, client, firing.run_id, began_s=time.monotonic())
    console.print(f"     created before the task above · fired {late_ms:.0f} ms after its time", style="dim")
    return watched


async def _fired(client: NovaClient, trigger_id: str) -> TriggerFiringView:
    deadline_s = time.monotonic() + _FIRES_S
    while time.monotonic() < deadline_s:
        firings = (await client.triggers.firings(trigger_id)).items
        if firings:
            return firings[0]
        await asyncio.sleep(_POLL_S)
    raise Unavailable(f"Trigger {trigger_id} did not fire within {_FIRES_S:.0f} s.")


async def show_task(console: Console, client: NovaClient, agent_id: str) -> Watched:
    """Create a task, start work on it, and show its plan before and after.

    Raises:
        Unavailable: The run did not succeed, or left steps open.
    """
    console.print()
    console.print(Rule("A task: work with a plan, done without a conversation", align="left", style="cyan"))
    steps = tuple(StepInput(title=step) for step in _STEPS)
    task = await client.tasks.create(
        TaskCreate(title=_TITLE, description=_HOW, owner_agent_id=agent_id, status="active", steps=steps)
    )
    console.print(f"[bold]task {task.id}[/]  {task.title}, in {len(task.steps)} steps, for {agent_id}")
    began_s = time.monotonic()
    run = await client.tasks.run(task.id)
    watched = await watch_run(console, client, run.id, began_s=began_s, brief=True)
    task = await client.tasks.get(task.id)
    for step in task.steps:
        mark, style = ("✓", "green") if step.done else ("○", "yellow")
        console.print(f"     {mark} {printable(step.title)}", style=style, markup=False)
    if not all(step.done for step in task.steps):
        raise Unavailable(f"Task {task.id} was worked on, and its plan is not done: it is {task.status!r}.")
    console.print(f"     {task.status}: {printable(task.outcome or 'no outcome')}", markup=False)
    console.print(f"     {watched.times}", style="dim")
    return watched
