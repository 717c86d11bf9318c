"""Tools in Python of a project, granted as a capability and executed in a process of their own."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import InvalidInput, Unavailable
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.user_tools import GivenAnswer
from nova_workers.contracts.waits import Answer, AskUser
from nova_workers.domain.capabilities.rules import CapabilityRegistry, default_registry, transactions
from nova_workers.domain.waits.sql.records import find_answers
from nova_workers.ledger.database import Connection, Database
from nova_workers.ledger.visibility import one_tenant
from tests.integration.capabilities.stage import Stage, calls, open_stage, says
from tests.requirements import proves
from tests.support.servers.model_server import model_server

pytestmark = pytest.mark.usefixtures("forked_user_code")

SHOP = '''
import asyncio, os, signal, sys, time
from pathlib import Path
from nova_workers.sdk import NotAnswered, tool, ToolContext

HERE = Path(__file__).parent.parent

@tool(read_only=True)
def stock(article: str) -> int:
    """Count an article.

    Args:
        article: Its number.
    """
    print("counting", article)
    return 3

@tool
def about(context: ToolContext) -> list[str]:
    """Tell the context."""
    token = context.secret("TOKEN")
    print("the token is", token)
    variables = sorted(name for name in os.environ if name.startswith("NOVA_"))
    return [context.tenant_id, context.agent_id, context.run_id, context.idempotency_key, token, *variables]

@tool
def process() -> int:
    """Return the process."""
    return os.getpid()

@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"

def _die_once(name: str) -> None:
    with (HERE / name).open("a") as file:
        file.write("x")
    if (HERE / name).read_text() == "x":
        os.kill(os.getpid(), signal.SIGKILL)

@tool
def die() -> str:
    """End the process in the first call."""
    _die_once("die")
    return "alive"

@tool(idempotent=True)
def die_idempotent(context: ToolContext) -> str:
    """End the process in the first call."""
    with (HERE / "keys").open("a") as file:
        file.write(context.idempotency_key + "\\n")
    _die_once("die_idempotent")
    return "alive"

@tool(needs_approval=True)
def close(context: ToolContext) -> str:
    """Close the shop."""
    with (HERE / "begun").open("a") as file:
        file.write(context.idempotency_key + "\\n")
    day = context.ask_user("Which day?", options=["Monday", "Tuesday"], only_options=True)
    try:
        sure = context.ask_user(f"Close on {day}?", expires_in_s=60)
    except NotAnswered:
        sure = "no answer"
    return f"closed on {day}: {sure}"

@tool
def nag(context: ToolContext) -> str:
    """Ask for ever."""
    while True:
        context.ask_user("Again?")

@tool
def leave() -> None:
    """End the process without a word."""
    os._exit(3)
'''
GRANT: dict[str, Any] = {"project:shop": {"config": {"secrets": ["TOKEN"]}}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "shop" / "tools").mkdir(parents=True)
    (tmp_path / "shop" / "tools" / "shop.py").write_text(SHOP, encoding="utf-8")
    return tmp_path / "shop"


@pytest.fixture
async def stage(
    database: Database, redis: Redis, settings: Settings, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Stage]:
    monkeypatch.setenv("NOVA_TEST_KEY", "of the fleet")
    async with model_server() as model, open_stage(database, redis, settings, model, projects=()) as stage:
        project = {"name": "shop", "folder": str(folder), "tenant": stage.harness.tenant_id}
        tools = stage.harness.settings.tools.model_copy(
            update={"projects": Settings.model_validate({"tools": {"projects": [project]}}).tools.projects}
        )
        stage.harness.settings = stage.harness.settings.model_copy(update={"tools": tools})
        await stage.secrets.put(stage.harness.tenant_id, "TOKEN", "tok-7f3a91c", by="person")
        yield stage


def _registry(stage: Stage) -> CapabilityRegistry:
    return default_registry(stage.harness.database, stage.harness.settings, SystemClock())


async def _call(stage: Stage, *tools: tuple[str, dict[str, Any]]) -> str:
    """Let the model make calls, and return what it reads of the results."""
    run = await stage.run("Go", calls(*tools), says("Done"), agent_id="clerk")
    assert run.status == "succeeded", run.error
    return json.dumps(stage.model.requests[1]["messages"][-1], ensure_ascii=False)


@proves("tools.granted")
async def test_a_project_is_a_capability_with_the_inputs_of_its_tools(stage: Stage) -> None:
    (info,) = [info for info in _registry(stage).discover() if info.name == "project:shop"]
    tools = {tool.name: tool for tool in info.tools}
    assert tools["stock"].input_schema["properties"]["article"]["description"] == "Its number."
    assert (tools["stock"].read_only, tools["stock"].idempotent, tools["pay"].idempotent) == (True, True, False)
    spec = AgentSpec.model_validate({"name": "a", "capabilities": {"project:shop": {"tools": ["stock", "buy"]}}})
    with pytest.raises(InvalidInput, match=r"project:shop has no tool 'buy'\. It has stock, about"):
        _registry(stage).validate(spec)


@proves("tools.granted")
async def test_another_tenant_has_no_such_capability(stage: Stage) -> None:
    registry = _registry(stage)
    spec = AgentSpec.model_validate({"name": "a", "capabilities": {"project:shop": {}}})
    with one_tenant("ten_other"):
        assert "project:shop" not in {info.name for info in registry.discover()}
        with pytest.raises(InvalidInput, match="there is no capability 'project:shop'"):
            registry.validate(spec)
    with one_tenant(stage.harness.tenant_id):
        registry.validate(spec)


@proves("tools.listed-once")
async def test_a_listing_is_read_again_only_when_files_change(stage: Stage, folder: Path) -> None:
    _registry(stage)
    (kept,) = (stage.harness.settings.home / "tools").iterdir()
    kept.write_text('{"tools": [{"name": "kept", "description": "", "input_schema": {}}]}')
    assert _registry(stage).has_tool("kept")
    (folder / "tools" / "more.py").write_text("x = 1\n")
    assert _registry(stage).has_tool("stock")
    assert not _registry(stage).has_tool("kept")


@proves("tools.granted")
async def test_only_granted_tools_are_offered_and_called(stage: Stage) -> None:
    await stage.agent("clerk", capabilities={"project:shop": {"tools": ["stock"]}})
    assert "There is no tool 'process'" in await _call(stage, ("process", {}))
    assert [tool["name"] for tool in stage.model.requests[0]["tools"]] == ["stock"]
    assert '"3"' in await _call(stage, ("stock", {"article": "bolt"}))
    assert "article: Field required" in await _call(stage, ("stock", {}))


@proves("tools.child")
async def test_a_call_brings_its_context_and_nothing_keeps_a_secret_of_it(stage: Stage, database: Database) -> None:
    await stage.agent("clerk", capabilities=GRANT)
    told = await _call(stage, ("about", {}))
    assert f'[\\"{stage.harness.tenant_id}\\",\\"clerk\\",\\"run_' in told
    assert ":toolu_about" in told
    assert "NOVA_" not in told
    # The model reads the name of a secret in place of its value, and nothing keeps the value.
    assert "tok-7f3a91c" not in await stage.dump()
    assert "[secret:TOKEN]" in await database.fetchval("SELECT result::text FROM tool_calls")


@proves("tools.approval")
async def test_a_tool_that_declares_it_waits_for_a_person(stage: Stage) -> None:
    await stage.agent("clerk", capabilities={"project:shop": {}})
    run = await stage.run("Go", calls(("pay", {"amount": 5})), agent_id="clerk")
    assert run.status == "waiting"
    await stage.agent(
        "trusted",
        capabilities={"project:shop": {}},
        permissions={"approvals": [{"tool": "pay", "decision": "always"}]},
    )
    run = await stage.run("Go", calls(("pay", {"amount": 5})), says("Done"), agent_id="trusted")
    assert run.status == "succeeded"
    assert "paid 5" in stage.asked(1)


@proves("tools.question")
@pytest.mark.parametrize("sure", ["yes", None])
async def test_a_tool_asks_a_person_and_is_called_again_with_the_answer_by_any_worker(
    stage: Stage, folder: Path, sure: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    outages = [Unavailable("The database does not answer.")]

    async def find(connection: Connection, run_id: str, call_id: str) -> tuple[GivenAnswer, ...]:
        if outages:
            raise outages.pop()
        return await find_answers(connection, run_id, call_id)

    monkeypatch.setattr(transactions, "find_answers", find)
    await stage.agent("clerk", capabilities={"project:shop": {}})
    run = await stage.run("Go", calls(("close", {})), agent_id="clerk")
    run = await _answer(stage, run.id, Answer(approve=True))
    (wait,) = run.waits
    assert isinstance(wait.request, AskUser)
    assert (wait.request.question, wait.request.options) == ("Which day?", ("Monday", "Tuesday"))
    with pytest.raises(InvalidInput, match="'Sunday' is not one of the options"):
        await _answer(stage, run.id, Answer(text="Sunday"))
    run = await _answer(stage, run.id, Answer(text="Monday"))
    assert run.status == "waiting"
    stage.model.reply(says("Done"))
    if sure is None:
        await stage.harness.database.execute("UPDATE run_waits SET due_at = now() WHERE status = 'open'")
        await stage.harness.waiting.sweep()
        await stage.harness.settle(stage.harness.worker(keeper=True))
        run = await stage.view(run.id)
    else:
        run = await _answer(stage, run.id, Answer(text=sure))
    assert run.status == "succeeded", run.error
    assert f"closed on Monday: {sure or 'no answer'}" in stage.asked(1)
    # Begun once before each question and once to its end, each time with the same key.
    keys = (folder / "begun").read_text().split()
    assert len(keys) == 3
    assert len(set(keys)) == 1
    assert not outages


@proves("tools.question")
async def test_a_call_asks_a_bounded_number_of_times(stage: Stage) -> None:
    await stage.agent("clerk", capabilities={"project:shop": {}})
    run = await stage.run("Go", calls(("nag", {})), agent_id="clerk")
    await stage.harness.database.execute(_ASKED_BEFORE, count=49)
    stage.model.reply(says("Done"))
    run = await _answer(stage, run.id, Answer(text="Yes"))
    assert run.status == "succeeded", run.error
    assert "nag asked a person more than 50 times" in stage.asked(1)


_ASKED_BEFORE = """
INSERT INTO run_waits (id, tenant_id, run_id, tool_call_id, kind, request, status, answer)
SELECT id || n, tenant_id, run_id, tool_call_id, kind, request, 'resolved', '{"text": "Yes"}'
  FROM run_waits, generate_series(1, CAST(:count AS int)) AS n
"""


@proves("tools.question")
async def test_a_call_that_has_asked_is_interrupted_and_not_one_that_never_began(
    stage: Stage,
) -> None:
    await stage.agent("clerk", capabilities={"project:shop": {}})
    run = await stage.run("Go", calls(("close", {})), agent_id="clerk")
    run = await _answer(stage, run.id, Answer(approve=True))
    await stage.harness.waiting.answer(stage.harness.tenant_id, run.id, None, Answer(text="Monday"))
    # The worker that goes on finds it canceled.
    await stage.harness.database.execute("UPDATE runs SET cancel_requested_at = now()")
    await stage.harness.settle(stage.harness.worker(keeper=True))
    assert (await stage.view(run.id)).status == "canceled"
    (call,) = await stage.harness.database.fetch("SELECT status, error FROM tool_calls")
    assert call["status"] == "interrupted"
    assert "had no effect" not in call["error"]


async def _answer(stage: Stage, run_id: str, answer: Answer) -> RunView:
    """Answer what a run waits for, let another worker go on with it, and return it."""
    await stage.harness.waiting.answer(stage.harness.tenant_id, run_id, None, answer)
    await stage.harness.settle(stage.harness.worker(keeper=True))
    return await stage.view(run_id)


@proves("tools.crash")
# That a call may not leave is of the process, and shown in `tests/unit/sdk/test_serving.py`.
@pytest.mark.parametrize("name", ["die", pytest.param("leave", marks=pytest.mark.long)])
async def test_a_call_whose_process_ends_is_interrupted_and_the_next_has_a_new_one(stage: Stage, name: str) -> None:
    await stage.agent("clerk", capabilities={"project:shop": {}})
    assert f"{name} was interrupted: the process of project:shop ended during the call" in await _call(
        stage, (name, {})
    )
    assert '"3"' in await _call(stage, ("stock", {"article": "bolt"}))


@proves("tools.crash")
@pytest.mark.long  # so does `tests/integration/engines/test_tool_programs.py`
async def test_an_idempotent_call_whose_process_ends_is_made_again_with_its_key(stage: Stage, folder: Path) -> None:
    await stage.agent("clerk", capabilities={"project:shop": {}})
    assert '"alive"' in await _call(stage, ("die_idempotent", {}))
    first, second = (folder / "keys").read_text().split()
    assert first == second


@proves("tools.refused")
async def test_code_that_cannot_be_imported_is_refused_where_it_is_granted(stage: Stage, folder: Path) -> None:
    (folder / "tools" / "broken.py").write_text("\nimport no_such_module\n")
    spec = AgentSpec.model_validate({"name": "a", "capabilities": {"project:shop": {}}})
    with pytest.raises(InvalidInput, match=rf"{folder}/tools/broken\.py:2: the module 'tools\.broken' cannot be imp"):
        _registry(stage).validate(spec)


@proves("tools.refused")
@pytest.mark.parametrize("name", ["note_create", "Read"])
async def test_a_name_of_another_tool_is_refused_with_its_place(stage: Stage, folder: Path, name: str) -> None:
    code = f'from nova_workers.sdk import tool\n\n@tool(name="{name}")\ndef mine() -> None:\n    """Do it."""\n'
    (folder / "tools" / "mine.py").write_text(code)
    spec = AgentSpec.model_validate({"name": "a", "capabilities": {"project:shop": {}}})
    with pytest.raises(InvalidInput, match=rf"tools/mine\.py:3: the name '{name}' is that of another tool"):
        _registry(stage).validate(spec)
