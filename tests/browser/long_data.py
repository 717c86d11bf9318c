"""Things with the longest names that people give, in every list of the console: long words, long ids, all scripts.

They are of a tenant of their own, so that the other tests of this folder see theirs only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import get_args

from nova_workers.client.client import NovaClient
from nova_workers.contracts.agents import CapabilityGrant
from nova_workers.contracts.http.datasets import DatasetCreate, ExampleGive, ExamplesAdd
from nova_workers.contracts.http.keys import KeyCreate
from nova_workers.contracts.http.memories import MemoryCreate
from nova_workers.contracts.http.notes import NoteCreate
from nova_workers.contracts.http.orchestrations import OrchestrationCreate
from nova_workers.contracts.http.order_policies import OrderSecretCreate
from nova_workers.contracts.http.scopes import Scope
from nova_workers.contracts.http.secrets import SecretPut
from nova_workers.contracts.http.tasks import StepInput, TaskCreate, TaskResourceAdd
from nova_workers.contracts.http.tenants import TenantCreate
from nova_workers.contracts.http.triggers import TriggerCreate
from nova_workers.contracts.http.webhooks import WebhookCreate
from nova_workers.contracts.http.wire import AgentCreate, AgentReplace, StatelessRunCreate, ThreadFork, ThreadPatch
from nova_workers.contracts.orders import AiWorkOrderV1
from nova_workers.contracts.skills import SkillPut
from tests.integration.api.orders.conftest import valid_order
from tests.support.harness.trees import call, complete, spawn
from tests.support.waiting import until

WORD = "Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft"
ARABIC = "مراجعة فواتير المورّدين قبل نهاية الربع: ما الذي تغيّر؟"
EMOJI = "👩🏽‍🚀🎉 Launch 👨‍👩‍👧‍👦"
_PATH = "/srv/" + "/".join(["reports-of-the-northern-region"] * 6)
_AGENT = "clerk-of-the-" + "very-" * 9 + "north"
_ANSWER = f"""# {WORD * 3}

{WORD * 4} and `{"x" * 300}`

| {WORD} | {ARABIC} | {EMOJI} | d | e | f | g |
| --- | --- | --- | --- | --- | --- | --- |
| {"1" * 60} | {ARABIC} | {"k" * 90} | 4 | 5 | 6 | 7 |

```
{"code" * 80}
```

- [x] {WORD * 2}
"""


@dataclass(frozen=True)
class LongData:
    """A key of the tenant, and the pages of one thing of each kind."""

    key: str
    pages: tuple[str, ...]


async def fill_with_long_data(operator: NovaClient) -> LongData:
    """Make a tenant whose things have long names."""
    made = await operator.tenants.create(TenantCreate(name=WORD * 2, ceilings=None))
    tenant = operator.with_key(made.key.key)
    await tenant.agents.create(
        AgentCreate(
            id=_AGENT,
            name=WORD,
            description=f"{WORD * 2} {ARABIC} {EMOJI}",
            engine="scripted",
            model=f"vendor/{'long-name-of-a-model-' * 4}2026",
            capabilities={name: CapabilityGrant() for name in ("user", "file-send", "memory")},
        )
    )
    pages = [f"/agents/{_AGENT}", *await _workspace(tenant), *await _conversations(tenant), await _tree(tenant)]
    secret = (await tenant.work_order_secrets.create(OrderSecretCreate())).secret
    order = AiWorkOrderV1.model_validate(valid_order((await tenant.whoami()).tenant_id, secret))
    await tenant.work_orders.submit(order, respond_async=True)
    (kept,) = (await tenant.work_orders.list(limit=1)).items
    return LongData(made.key.key, (*pages, f"/work-orders/{kept.trace_id}"))


async def _workspace(tenant: NovaClient) -> list[str]:
    scopes = [scope for scope in get_args(Scope) if scope != "operator"]
    await tenant.keys.create(KeyCreate(name=WORD, scopes=scopes))
    await tenant.memories.create(MemoryCreate(content=f"{WORD * 4} {ARABIC}"))
    await tenant.secrets.put("TOKEN_" + "LONG_" * 11, SecretPut(value="not-a-real-token", description=WORD * 3))
    skill = f"---\nname: {'long-' * 11}skill\ndescription: {WORD * 3}\n---\n{_ANSWER}"
    await tenant.skills.put("long-" * 11 + "skill", SkillPut(skill_md=skill))
    note = await tenant.notes.create(NoteCreate(agent_id=_AGENT, title=WORD * 2, content=_ANSWER, pinned=True))
    made = await tenant.webhooks.create(WebhookCreate(url=f"https://example.com{_PATH}", description=WORD * 3))
    await tenant.webhooks.test(made.webhook.id)
    dataset = "long-" * 12 + "set"
    example = ExampleGive(key="k" * 120, input=_ANSWER, expected=WORD * 3, split=WORD[:20])
    await tenant.datasets.create(DatasetCreate(name=dataset, description=WORD * 3))
    await tenant.datasets.add(dataset, ExamplesAdd(examples=[example]))
    trigger = await tenant.triggers.create(
        TriggerCreate(agent_id=_AGENT, kind="cron", schedule="0 9 1 * *", prompt=WORD * 3, title=WORD * 2)
    )
    task = await tenant.tasks.create(
        TaskCreate(
            title=WORD * 2,
            owner_agent_id=_AGENT,
            description=f"{WORD * 3}\n\n{ARABIC}",
            status="draft",
            steps=(StepInput(title=WORD[:60], details=WORD * 3), StepInput(title=ARABIC[:60])),
            resources=(TaskResourceAdd(kind="file", value=_PATH, title=WORD),),
        )
    )
    return [
        f"/notes/{note.id}",
        f"/notes/{note.id}/edit",
        f"/skills/{'long-' * 11}skill",
        f"/webhooks/{made.webhook.id}",
        f"/datasets/{dataset}",
        f"/evaluations/~new?dataset={dataset}",
        f"/triggers/{trigger.id}",
        f"/triggers/{trigger.id}/edit",
        f"/tasks/{task.id}",
    ]


async def _conversations(tenant: NovaClient) -> list[str]:
    """Send messages whose runs ended, failed, and wait for a person."""
    done = await _run(
        tenant,
        f"{WORD * 3} {ARABIC} {EMOJI}",
        {"think": WORD * 4},
        call("file_send", content="1", name="f" * 190 + ".txt", caption=WORD * 2),
        {"tool": {"name": "a_tool_with_a_name_" + "of_many_words_" * 5, "input": {"text": WORD * 4}, "fail": WORD * 4}},
        {"say": _ANSWER},
    )
    failed = await _run(tenant, ARABIC, {"error": {"kind": "engine_error", "message": f"{WORD * 6}: {_PATH}"}})
    asks = await _run(tenant, WORD * 4, call("ask_user", question=f"{WORD * 3}?", options=[WORD * 2, ARABIC, EMOJI]))
    await tenant.threads.patch(done[1], ThreadPatch(title=WORD * 2, label=WORD))
    turns = (await tenant.threads.turns(done[1])).items
    await tenant.threads.fork(done[1], ThreadFork(turn_id=turns[0].id))
    (file,) = (await tenant.files.list(limit=1)).items
    return [
        *(f"/runs/{run_id}" for run_id, _ in (done, failed, asks)),
        *(f"/chat/{thread_id}" for _, thread_id in (done, failed, asks)),
        f"/files/{file.id}",
        f"/search?q={WORD}",
    ]


async def _run(tenant: NovaClient, text: str, *script: dict[str, object]) -> tuple[str, str]:
    """Execute a run with a message that a person could have written; return its id and its conversation's."""
    await _play(tenant, *script)
    run = await tenant.runs.create(StatelessRunCreate(agent_id=_AGENT, message=text))

    async def rests() -> bool:
        now = await tenant.runs.get(run.id)
        return now.finished_at is not None or bool(now.waits)

    await until(rests, f"the run of {text[:20]!r}")
    return run.id, run.thread_id


async def _tree(tenant: NovaClient) -> str:
    """Start an orchestration whose agents wait for each other and for a person."""
    asking = spawn(call("ask_user", question=f"{WORD * 3}?"), complete("Done."), name=WORD[:60])
    await _play(tenant, asking, complete(WORD * 3))
    tree = await tenant.orchestrations.start(OrchestrationCreate(task=f"{WORD * 3} {ARABIC}", agent_id=_AGENT))

    async def asks() -> bool:
        return any(one.waits for one in (await tenant.orchestrations.tree(tree.id)).agents)

    await until(asks, "the question of the tree")
    return f"/orchestrations/{tree.id}"


async def _play(tenant: NovaClient, *script: dict[str, object]) -> None:
    """Give the agent another script; its runs have the messages of people."""
    spec = (await tenant.agents.get(_AGENT)).spec.model_dump()
    await tenant.agents.replace(_AGENT, AgentReplace.model_validate(spec | {"engine_config": {"script": list(script)}}))
