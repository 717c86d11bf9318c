"""Agents in Python: functions whose operations are the steps of a run."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import InvalidInput
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.wire import RunView
from nova_workers.contracts.steps import StepRecord
from nova_workers.contracts.user_agents import AgentProgram
from nova_workers.contracts.waits import Answer
from nova_workers.domain.capabilities.rules import CapabilityContext, default_registry
from nova_workers.domain.runs.sql import journal
from nova_workers.domain.runs.sql.reads import get_run
from nova_workers.ledger.database import Database
from nova_workers.ledger.visibility import one_tenant
from tests.integration.capabilities.stage import Stage, open_stage, says
from tests.requirements import proves
from tests.support.servers.model_server import Reply, Status, model_server
from tests.support.waiting import until

pytestmark = pytest.mark.usefixtures("forked_user_code")

CODE = '''
import asyncio, os, signal
from pathlib import Path
from pydantic import BaseModel
from nova_workers.sdk import Answer, Context, Message, ModelFailed, StepFailed, ToolFailure, agent

HERE = Path(__file__).parent.parent

def record(line):
    with (HERE / "done").open("a") as file:
        file.write(line + "\\n")
    return line

async def later(line):
    await asyncio.sleep(0)
    return record(line)

@agent
async def work(ctx: Context, message: Message) -> Answer:
    """Do some steps."""
    first = await ctx.step("first", record, "one")
    ctx.emit("Half. ")
    two, three = await ctx.gather(ctx.step("second", later, "two"), ctx.step("third", record, "three"))
    return Answer(f"{message.text}: {first} {two} {three}")

@agent
async def listens(ctx: Context, message: Message) -> str:
    await ctx.step("first", record, "one")
    return "heard " + " ".join(each.text for each in await ctx.new_messages())

@agent
async def order(ctx: Context, message: Message) -> str:
    found = await ctx.step("plan", record, "planned")
    if message.text == "pay":
        found = await ctx.tool("pay", amount=5)
    if message.text == "ask":
        found = await ctx.ask_user("Which?", options=["a", "b"])
    if message.text == "delegate":
        found = await ctx.ask_agent("scripted", "hello")
    if message.text == "sleep":
        await ctx.sleep(0.01)
    await ctx.step("after", record, "after")
    return f"Done: {found}"

@agent
async def fail(ctx: Context, message: Message) -> list[str]:
    async def breaks():
        raise ValueError("no luck")
    failed = []
    for wanted in (ctx.step("breaks", breaks), ctx.step("large", lambda: "x" * 300_000), ctx.tool("nothing")):
        try:
            await wanted
        except (StepFailed, ToolFailure) as error:
            failed.append(str(error))
    return failed

@agent
async def crash(ctx: Context, message: Message) -> str:
    def die_once():
        if not (HERE / "died").exists():
            (HERE / "died").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return "alive"
    await ctx.step("before", record, "before")
    if message.text == "once":
        try:
            await ctx.step_once("die", die_once)
        except StepFailed as error:
            return str(error)
    return await ctx.step("die", die_once)

@agent
async def broken(ctx: Context, message: Message) -> str:
    await ctx.step("before", record, "before")
    raise KeyError("lost")

@agent
async def slow(ctx: Context, message: Message) -> str:
    async def takes_long():
        await asyncio.sleep(0.5)
        return record("long")
    quick = await ctx.step("quick", record, "quick")
    return f"{quick} {await ctx.step('long', takes_long)} {await ctx.step_once('once', record, 'once')}"

class Kind(BaseModel):
    kind: str

@agent
async def asks(ctx: Context, message: Message) -> str:
    await ctx.step("before", record, "before")
    if message.text == "twice":
        pair = await ctx.gather(ctx.model("one", name="a"), ctx.model("two", name="b"))
        return " ".join(each.text for each in pair)
    if message.text == "kind":
        return (await ctx.model("What is it?", name="kind", output=Kind)).output["kind"]
    if message.text == "nowhere":
        try:
            await ctx.model("hello", engine="none")
        except ModelFailed as error:
            return str(error)
    if message.text == "again":
        earlier = [f"{each.role}: {each.content[0]['text']}" for each in await ctx.history()]
        reply = await ctx.model("And now?", history=True, system="Be brief.")
        return f"{earlier} {reply.text}"
    reply = await ctx.model(message.text)
    if message.text == "wait":
        await ctx.ask_user("Shall I go on?")
    await ctx.step("after", record, "after")
    return f"It said: {reply.text}"

@agent
async def notes(ctx: Context, message: Message) -> str:
    first = await ctx.state.merge({"seen": message.text, "gone": 1})
    await ctx.state.merge({"gone": None})
    return f"{first} {await ctx.state.read()}"

@agent
async def secret(ctx: Context, message: Message) -> str:
    return await ctx.step("read", lambda: "it is " + ctx.secret("TOKEN"))
'''
TOOLS = '''
from nova_workers.sdk import tool

@tool(needs_approval=True)
def pay(amount: int) -> str:
    """Pay."""
    return f"paid {amount}"
'''
GRANT: dict[str, Any] = {"project:shop": {"config": {"secrets": ["TOKEN"]}}, "user": {}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, code in (("code", CODE), ("tools", TOOLS)):
        (tmp_path / "shop" / name).mkdir(parents=True)
        (tmp_path / "shop" / name / "shop.py").write_text(code, encoding="utf-8")
    return tmp_path / "shop"


@pytest.fixture
async def stage(database: Database, redis: Redis, settings: Settings, folder: Path) -> AsyncIterator[Stage]:
    async with model_server() as model, open_stage(database, redis, settings, model, projects=()) as stage:
        project = {"name": "shop", "folder": str(folder), "tenant": stage.harness.tenant_id}
        tools = stage.harness.settings.tools.model_copy(
            update={"projects": Settings.model_validate({"tools": {"projects": [project]}}).tools.projects}
        )
        stage.harness.settings = stage.harness.settings.model_copy(update={"tools": tools})
        await stage.secrets.put(stage.harness.tenant_id, "TOKEN", "tok-7f3a91c", by="person")
        yield stage


async def _run(stage: Stage, function: str, text: str = "go", *replies: Reply, **config: Any) -> RunView:
    await stage.agent(
        function, engine="code", engine_config={"agent": f"shop:{function}", **config}, capabilities=GRANT
    )
    return await stage.run(text, *replies, agent_id=function)


async def _answered(stage: Stage, run_id: str, **answer: Any) -> RunView:
    """Answer what a run waits for, and return the run as another worker ends it."""
    await stage.harness.waiting.answer(stage.harness.tenant_id, run_id, None, Answer(**answer))
    return await _settled(stage, run_id)


async def _settled(stage: Stage, run_id: str) -> RunView:
    worker = stage.harness.worker(keeper=True)
    await stage.harness.settle(worker)
    await worker.publisher.drain(5)
    async with stage.harness.database.connection() as connection:
        return await get_run(connection, stage.harness.tenant_id, run_id)


async def _events(stage: Stage) -> list[dict[str, Any]]:
    return [event for entry in await stage.events() if entry.startswith("{") for _, event in json.loads(entry)["e"]]


def _done(folder: Path) -> list[str]:
    return (folder / "done").read_text(encoding="utf-8").split()


@proves("code.steps")
async def test_steps_are_calls_of_the_journal_and_their_values_those_of_the_function(
    stage: Stage, folder: Path, database: Database
) -> None:
    run = await _run(stage, "work")
    assert (run.status, run.text) == ("succeeded", "go: one two three"), run.error
    assert sorted(_done(folder)) == ["one", "three", "two"]
    rows = await database.fetch("SELECT step, tool_name, params->>'name', status FROM tool_calls ORDER BY sequence")
    assert [tuple(row) for row in rows] == [
        (0, "Step", "first", "completed"),
        (1, "Step", "second", "completed"),
        (1, "Step", "third", "completed"),
    ]
    texts = await database.fetch("SELECT content->0->>'text' FROM messages WHERE role = 'assistant' ORDER BY seq")
    assert [row[0] for row in texts] == [None, "Half. ", "go: one two three"]


@proves("code.steps")
async def test_a_short_step_is_committed_once_and_a_long_one_is_shown_as_begun_first(
    stage: Stage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[str] = []
    commit = journal.commit_calls

    async def noted(connection: Any, run_id: str, fence: int, step: StepRecord, **given: Any) -> None:
        begun.append(step.tool_calls[0].params["name"])
        await commit(connection, run_id, fence, step, **given)

    monkeypatch.setattr(journal, "commit_calls", noted)
    run = await _run(stage, "slow")
    assert (run.status, run.text) == ("succeeded", "quick long once"), run.error
    assert [name for name in begun if name != "quick"] == ["long", "once"]
    assert _done(folder) == ["quick", "long", "once"]


@proves("code.steps")
async def test_a_failed_step_is_an_error_that_the_function_may_catch(stage: Stage) -> None:
    run = await _run(stage, "fail")
    assert run.status == "succeeded", run.error
    breaks, large, nothing = json.loads(run.text or "")
    assert breaks.startswith("The step 'breaks' failed: ValueError: no luck (at /")
    assert "The step 'large' is too large: its result is 300,002 bytes as JSON, and the journal takes 262,144." in large
    assert "'nothing'" in nothing


@proves("code.steps")
async def test_a_function_that_raises_fails_its_run_with_the_place(stage: Stage, folder: Path) -> None:
    run = await _run(stage, "broken")
    assert run.status == "failed"
    assert run.error is not None
    assert f"shop:broken failed: KeyError: 'lost' (at {folder}/code/shop.py:" in run.error.message


@proves("code.steps")
async def test_nothing_keeps_a_secret_that_a_step_returned(stage: Stage) -> None:
    run = await _run(stage, "secret")
    assert run.text == "it is [secret:TOKEN]", run.error
    assert "tok-7f3a91c" not in await stage.dump()


@proves("code.crash")
async def test_a_step_whose_process_ends_is_executed_again(stage: Stage, folder: Path) -> None:
    run = await _run(stage, "crash")
    assert (run.status, run.text) == ("succeeded", "alive"), run.error
    assert _done(folder) == ["before"]


@proves("code.crash")
async def test_a_step_that_must_not_be_executed_twice_is_interrupted(stage: Stage, folder: Path) -> None:
    run = await _run(stage, "crash", "once")
    assert "step 'die' was interrupted" in (run.text or ""), run.error
    assert _done(folder) == ["before"]


@proves("code.waits")
async def test_a_function_waits_for_an_approval_and_goes_on_after_its_steps(stage: Stage, folder: Path) -> None:
    run = await _run(stage, "order", "pay")
    assert run.status == "waiting", run.error
    run = await _answered(stage, run.id, approve=True)
    assert (run.status, run.text) == ("succeeded", "Done: paid 5"), run.error
    assert _done(folder) == ["planned", "after"]


@proves("code.waits")
async def test_a_function_asks_a_person(stage: Stage, folder: Path) -> None:
    run = await _run(stage, "order", "ask")
    assert run.status == "waiting", run.error
    run = await _answered(stage, run.id, text="b")
    assert (run.status, run.text) == ("succeeded", "Done: b"), run.error
    assert _done(folder) == ["planned", "after"]


@proves("code.waits")
async def test_a_function_asks_another_agent(stage: Stage, folder: Path) -> None:
    await stage.agent(
        "order", engine="code", engine_config={"agent": "shop:order"}, capabilities={"agents": {"tools": ["ask_agent"]}}
    )
    run = await stage.run("delegate", agent_id="order")
    assert (run.status, run.text) == ("succeeded", "Done: You said: hello"), run.error
    assert _done(folder) == ["planned", "after"]


@proves("code.waits")
async def test_a_function_waits_for_a_time(stage: Stage, folder: Path) -> None:
    run = await _run(stage, "order", "sleep")
    assert run.status == "waiting", run.error

    async def due() -> bool:
        await stage.harness.reconciler.reconcile()
        return bool(stage.harness.bells.waiting)

    await until(due)
    run = await _settled(stage, run.id)
    assert (run.status, run.text) == ("succeeded", "Done: planned"), run.error
    assert _done(folder) == ["planned", "after"]


@proves("code.models")
async def test_an_answer_of_a_model_is_a_step_whose_usage_is_the_runs(
    stage: Stage, folder: Path, database: Database
) -> None:
    run = await _run(stage, "asks", "hi", says("Hel", "lo."))
    assert (run.status, run.text) == ("succeeded", "It said: Hello."), run.error
    assert len(stage.model.requests) == 1
    rows = await database.fetch("SELECT step, tool_name, params->>'name', status FROM tool_calls ORDER BY sequence")
    assert [tuple(row) for row in rows] == [
        (0, "Step", "before", "completed"),
        (1, "Model", "model", "completed"),
        (2, "Step", "after", "completed"),
    ]
    used = await database.fetchrow("SELECT input_tokens, output_tokens FROM usage")
    assert used is not None
    assert min(used) > 0
    shown = [event for event in await _events(stage) if event["type"] == "token" and event.get("agent") == "model"]
    assert "".join(event["text"] for event in shown) == "Hello."


@proves("code.models")
async def test_a_later_attempt_has_the_answer_without_asking_again(stage: Stage, folder: Path) -> None:
    run = await _run(stage, "asks", "wait", says("Hello."))
    assert run.status == "waiting", run.error
    run = await _answered(stage, run.id, text="yes")
    assert (run.status, run.text) == ("succeeded", "It said: Hello."), run.error
    assert (len(stage.model.requests), _done(folder)) == (1, ["before", "after"])


@proves("code.models")
async def test_a_budget_of_the_agent_bounds_what_its_code_asks(stage: Stage, folder: Path) -> None:
    await stage.agent("asks", engine="code", engine_config={"agent": "shop:asks"}, token_budget=1)
    run = await stage.run("hi", says("Hello."), agent_id="asks")
    assert (run.stop_reason, run.limit_reached) == ("max_tokens", "tokens"), run.error
    assert _done(folder) == ["before"]


@proves("code.models")
async def test_a_model_gives_a_value_of_a_schema_and_gets_the_conversation(stage: Stage) -> None:
    first = await _run(stage, "asks", "kind", says('{"kind": "bird"}'))
    assert first.text == "bird", first.error
    run = await stage.run("again", says("Then."), agent_id="asks", thread_id=first.thread_id)
    assert run.text == "['user: kind', 'assistant: bird'] Then.", run.error
    assert stage.model.conversation() == [("user", "kind"), ("assistant", "bird"), ("user", "And now?")]
    assert "Be brief." in stage.asked(-1)


@proves("code.models")
async def test_models_are_asked_at_once_and_a_wrong_question_is_an_error_of_the_function(stage: Stage) -> None:
    stage.model.reply_to("one", says("1"))
    stage.model.reply_to("two", says("2"))
    run = await _run(stage, "asks", "twice")
    assert run.text == "1 2", run.error
    run = await stage.run("nowhere", agent_id="asks")
    assert "there is no engine 'none'; there are: anthropic" in (run.text or ""), run.error


@proves("code.models")
async def test_a_run_waits_for_a_provider_that_its_code_asks(stage: Stage, folder: Path) -> None:
    run = await _run(stage, "asks", "hi", Status(401, "authentication_error", "invalid x-api-key"))
    assert run.status == "queued"
    assert run.hold is not None
    stage.model.reply(says("Hello."))

    async def goes_on() -> bool:
        await stage.harness.database.execute("UPDATE runs SET held_until = now() - interval '1 second'")
        await stage.harness.reconciler.reconcile()
        # The key rests in this process, and so the run may be held again.
        return (await _settled(stage, run.id)).status == "succeeded"

    await until(goes_on)
    run = await _settled(stage, run.id)
    assert (run.status, run.text) == ("succeeded", "It said: Hello."), run.error
    assert _done(folder) == ["before", "after"]


@proves("code.state")
async def test_a_function_reads_and_changes_the_state_document_of_its_thread(stage: Stage) -> None:
    await stage.agent("notes", engine="code", engine_config={"agent": "shop:notes"}, capabilities={"state": {}})
    run = await stage.run("hi", agent_id="notes")
    assert run.text == "1 {'seen': 'hi'}", run.error


@proves("code.mismatch")
@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        (
            '"plan", record',
            '"design", record',
            "At step 1 of the run the journal has step 'plan', and the function wants",
        ),
        # Of another length: Python takes a file of the same second and size for the one that it compiled.
        ('ctx.tool("pay"', 'ctx.tool("refund"', "has tool 'pay', and the function wants tool 'refund'"),
    ],
)
async def test_code_that_does_something_else_fails_with_both_names(
    stage: Stage, folder: Path, old: str, new: str, problem: str
) -> None:
    run = await _run(stage, "order", "pay")
    assert run.status == "waiting", run.error
    (folder / "code" / "shop.py").write_text(CODE.replace(old, new), encoding="utf-8")
    run = await _answered(stage, run.id, approve=True)
    assert run.status == "failed"
    assert run.error is not None
    assert run.error.kind == "nondeterminism"
    assert problem in run.error.message
    assert "began the run)" in run.error.message


@proves("code.mismatch")
async def test_code_of_another_version_goes_on_only_where_the_agent_allows_it(stage: Stage, folder: Path) -> None:
    first = await _run(stage, "order", "pay", on_new_version="refuse")
    (folder / "code" / "other.py").write_text("# A new file is a new version.\n", encoding="utf-8")
    run = await _answered(stage, first.id, approve=True)
    assert run.status == "failed"
    assert run.error is not None
    assert "The run was begun by version" in run.error.message


@proves("code.refused")
@pytest.mark.parametrize(
    ("config", "problem"),
    [
        ({}, r"engine_config\.agent"),
        ({"agent": "shop:nothing"}, r"There is no agent 'nothing' in it; there are: work, listens"),
        ({"agent": "other:work"}, r"there is no code 'other' for 'other:work'"),
        ({"agent": "shop:work", "step": 1}, r"engine_config\.step"),
    ],
)
async def test_an_agent_without_code_is_refused_when_it_is_written(
    stage: Stage, config: dict[str, str], problem: str
) -> None:
    registry = default_registry(stage.harness.database, stage.harness.settings, SystemClock())
    spec = AgentSpec.model_validate({"name": "a", "engine": "code", "engine_config": config})
    with pytest.raises(InvalidInput, match=problem):
        registry.validate(spec)


@proves("code.refused")
async def test_code_of_another_tenant_is_not_there(stage: Stage, folder: Path) -> None:
    registry = default_registry(stage.harness.database, stage.harness.settings, SystemClock(), execute=_never)
    config = {"name": "a", "engine": "code", "engine_config": {"agent": "shop:work"}}
    spec = AgentSpec.model_validate(config)
    with one_tenant("ten_other"), pytest.raises(InvalidInput, match="there is no code 'shop'"):
        registry.validate(spec)
    # Also for an agent that another way brought in.
    context = CapabilityContext(tenant_id="ten_other", agent_id="a", thread_id="thr_1", run_id="run_1")
    with pytest.raises(InvalidInput, match="there is no code 'shop'"):
        await registry.program(spec, context)


async def _never(_: object) -> AgentProgram:
    raise AssertionError("It was to be executed.")


@proves("code.steered")
@pytest.mark.parametrize(("function", "text"), [("listens", "heard more"), ("work", "go: one two three")])
async def test_a_message_joins_where_the_function_asks_for_it(stage: Stage, function: str, text: str) -> None:
    await stage.agent(function, engine="code", engine_config={"agent": f"shop:{function}"})
    harness = stage.harness
    run = await harness.submit("go", agent_id=function)
    more = await harness.submit("more", run.thread_id, on_busy="steer")
    worker = harness.worker(keeper=True)
    await harness.settle(worker)
    await worker.publisher.drain(5)
    async with harness.database.connection() as connection:
        first = await get_run(connection, harness.tenant_id, run.run_id)
        second = await get_run(connection, harness.tenant_id, more.run_id)
    assert first.text == text, first.error
    assert second.status == ("merged" if function == "listens" else "succeeded")
