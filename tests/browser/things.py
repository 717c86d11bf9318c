"""Pages of one thing of each kind, and of things in each state, of the fleet that the tests share."""

from __future__ import annotations

from tests.browser.harness import Site


async def things(nova: Site) -> list[str]:
    """Return the pages of one thing of each kind. The agent's have a test of their own."""
    fleet = nova.fleet
    (trigger,), (task,) = (await fleet.triggers.list(limit=1)).items, (await fleet.tasks.list(limit=1)).items
    (note,) = (await fleet.notes.list(agent_id="analyst", limit=1)).items
    (hook,) = (await fleet.webhooks.list(limit=1)).items
    (order,) = (await fleet.work_orders.list(limit=1)).items
    (run,) = (await fleet.runs.list(agent_id="analyst", limit=1)).items
    (rollout,) = (await fleet.rollouts.list("support", limit=1)).items
    (evaluation,) = (await fleet.evaluations.list(limit=1)).items
    return [
        "/datasets/questions",
        f"/agents/support/rollouts/{rollout.id}",
        f"/evaluations/{evaluation.id}",
        f"/evaluations/{evaluation.id}?key=prices",
        f"/runs/{run.id}",
        f"/chat/{run.thread_id}",
        f"/triggers/{trigger.id}",
        f"/tasks/{task.id}",
        f"/notes/{note.id}",
        "/skills/weekly-report",
        f"/webhooks/{hook.id}",
        f"/work-orders/{order.trace_id}",
    ]


async def trees(nova: Site) -> list[str]:
    """Return the pages of an orchestration with agents that wait."""
    (tree,) = (await nova.fleet.orchestrations.list(limit=1)).items
    return [f"/orchestrations/{tree.id}"]


async def states(nova: Site) -> list[str]:
    """Return the runs and conversations that failed, wait for a person, and write."""
    runs = [(await nova.fleet.runs.list(agent_id=id_, limit=1)).items[0] for id_ in ("importer", "release", "writer")]
    return [*(f"/runs/{run.id}" for run in runs), *(f"/chat/{run.thread_id}" for run in runs)]
