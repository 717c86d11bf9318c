"""What a fleet looks like after a morning's work: agents with scripts, their conversations, questions and failures."""

from __future__ import annotations

from typing import Any

from nova_workers.client.client import NovaClient
from nova_workers.contracts.agents import CapabilityGrant
from nova_workers.contracts.http.datasets import DatasetCreate, ExampleGive, ExamplesAdd
from nova_workers.contracts.http.evaluations import EvaluationStart
from nova_workers.contracts.http.memories import MemoryCreate
from nova_workers.contracts.http.notes import NoteCreate
from nova_workers.contracts.http.orchestrations import OrchestrationCreate
from nova_workers.contracts.http.order_policies import OrderSecretCreate
from nova_workers.contracts.http.rollouts import RolloutStart
from nova_workers.contracts.http.secrets import SecretPut
from nova_workers.contracts.http.tasks import StepInput, TaskCreate
from nova_workers.contracts.http.triggers import TriggerCreate
from nova_workers.contracts.http.webhooks import WebhookCreate
from nova_workers.contracts.http.wire import AgentCreate, AgentPatch, RunView, StatelessRunCreate
from nova_workers.contracts.orders import AiWorkOrderV1
from nova_workers.contracts.skills import SkillPut
from tests.integration.api.orders.conftest import valid_order
from tests.support.harness.trees import call, complete, spawn
from tests.support.waiting import until

_REPORT = """Sales rose in **two of three** regions.

| region | this week | last week |
| --- | ---: | ---: |
| north | 1,204 | 1,102 |
| south | 860 | 911 |
| west | 1,431 | 1,290 |

The query that I used:

```sql
SELECT region, sum(amount) FROM orders
WHERE created_at >= now() - interval '7 days'
GROUP BY region;
```

- The fall in the south is *one* customer, who pauses until spring.
- Details: [the dashboard](https://metrics.example.com/weekly).
"""

_SKILL = """---
name: weekly-report
description: How the weekly report is written, and for whom.
---
Begin with the one number that changed most. Then a table, then what to do.
"""

_SCRIPTS: dict[str, tuple[str, str, list[dict[str, Any]]]] = {
    "analyst": (
        "Analyst",
        "Reads the numbers, and says what they mean.",
        [
            {"think": "The weekly figures are in the notes; I compare them with last week's."},
            {"tool": {"name": "query_orders", "input": {"days": 7}, "result": "3 rows", "sleep_s": 0.4}},
            {"say": _REPORT, "usage": {"input_tokens": 18_204, "output_tokens": 412, "cost_usd": 0.0608}},
        ],
    ),
    "support": (
        "Support",
        "Answers customers.",
        [
            {"say": "Your parcel left the warehouse this morning and arrives on Thursday."},
            {"usage": {"input_tokens": 2_910, "output_tokens": 88, "cost_usd": 0.0101}},
        ],
    ),
    "release": (
        "Release manager",
        "Ships releases, and asks before it does.",
        [
            {
                "tool": {
                    "name": "ask_user",
                    "input": {"question": "All checks passed. Publish version 2.4?", "options": ["publish", "wait"]},
                }
            },
            {"say": "Done."},
        ],
    ),
    "importer": (
        "Importer",
        "Reads files of suppliers.",
        [{"say": "Reading the file. "}, {"error": {"kind": "timeout", "message": "The model did not answer in 60 s."}}],
    ),
    "planner": (
        "Planner",
        "Divides work among agents.",
        [
            {"say": "One agent for each region."},
            spawn(complete("North rose by 8 percent."), name="North", wait=False),
            spawn(call("ask_user", question="Leave the paused customer out?"), complete("Done."), name="South"),
            complete("North rose by 8 percent; South is as before without the paused customer."),
        ],
    ),
    "writer": (
        "Writer",
        "Writes the newsletter.",
        [{"say": "Spring is here, and with it a new release. " * 400, "tokens_per_s": 4}],
    ),
}

_MESSAGES = (
    ("support", "Where is my parcel?"),
    ("importer", "Import prices-2026-11.csv"),
    ("analyst", "How did we do this week?"),
    ("support", "Can I change the address of order 4711?"),
    ("release", "Prepare version 2.4 and publish it when all checks pass."),
    ("writer", "Write the newsletter of this month."),
)


async def seed(fleet: NovaClient) -> None:
    """Make agents, what they keep, and runs: some ended, one failed, some wait for a person, one writes for minutes."""
    for agent, (name, description, script) in _SCRIPTS.items():
        await fleet.agents.create(
            AgentCreate(
                id=agent,
                name=name,
                description=description,
                engine="scripted",
                engine_config={"script": script},
                capabilities={"user": CapabilityGrant(), "memory": CapabilityGrant()},
            )
        )
    await _fill_workspace(fleet)
    for agent, message in _MESSAGES:
        run = await fleet.runs.create(StatelessRunCreate(message=message, agent_id=agent))
        await until(lambda run=run: _is_settled(fleet, run), f"the run of {agent}")
    tree = await fleet.orchestrations.start(
        OrchestrationCreate(task="Compare the regions of this week.", agent_id="planner")
    )
    await until(lambda: _asks(fleet, tree.id), "the question of South")


async def _fill_workspace(fleet: NovaClient) -> None:
    for content in ("The release day is Thursday.", "Prices are in euros.", "The south region has one large customer."):
        await fleet.memories.create(MemoryCreate(content=content))
    await fleet.notes.create(NoteCreate(agent_id="analyst", title="Weekly figures", content=_REPORT, pinned=True))
    await fleet.notes.create(
        NoteCreate(agent_id="support", title="Tone", content="Short, warm, and with one next step.")
    )
    await fleet.datasets.create(DatasetCreate(name="questions", description="What customers ask"))
    example = ExampleGive(key="prices", input="In which currency are prices?", expected="euros")
    await fleet.datasets.add("questions", ExamplesAdd(examples=[example]))
    candidate = await fleet.agents.save_version("support", AgentPatch(description="Answers customers, shorter."))
    await fleet.rollouts.start("support", RolloutStart(version=candidate.version))
    await fleet.evaluations.start(EvaluationStart(agent="analyst", version=1, dataset="questions"))
    await fleet.webhooks.create(WebhookCreate(url="https://hooks.example.com/nova", enabled=False))
    secret = (await fleet.work_order_secrets.create(OrderSecretCreate())).secret
    order = AiWorkOrderV1.model_validate(valid_order((await fleet.whoami()).tenant_id, secret))
    await fleet.work_orders.submit(order, respond_async=True)
    await fleet.secrets.put("METRICS_TOKEN", SecretPut(value="not-a-real-token", description="Reads the dashboard"))
    await fleet.skills.put("weekly-report", SkillPut(skill_md=_SKILL))
    steps = tuple(
        StepInput(title=title, done=at == 0) for at, title in enumerate(("Collect", "Compare", "Write it up"))
    )
    await fleet.tasks.create(TaskCreate(title="Report of the quarter", owner_agent_id="analyst", steps=steps))
    await fleet.triggers.create(
        TriggerCreate(
            agent_id="analyst", kind="cron", schedule="0 9 * * 1", prompt="How did we do?", title="Mondays at 9"
        )
    )


async def _asks(fleet: NovaClient, orchestration: str) -> bool:
    """Whether an agent of an orchestration waits for a person."""
    tree = await fleet.orchestrations.tree(orchestration)
    return any(agent.waits for agent in tree.agents)


async def _is_settled(fleet: NovaClient, run: RunView) -> bool:
    """Whether a run ended, waits, or writes."""
    now = await fleet.runs.get(run.id)
    return (
        now.finished_at is not None or now.status == "waiting" or (now.status == "running" and run.agent_id == "writer")
    )
