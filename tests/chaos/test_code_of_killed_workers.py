"""A worker that executes an agent in Python is killed: another one goes on after the last finished step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from nova_workers.contracts.http.wire import AgentCreate, StatelessRunCreate
from nova_workers.ledger.database import Database
from tests.requirements import proves
from tests.support.processes.fleet import Fleet, add_api_key
from tests.support.processes.inspection import wait_until_gone
from tests.support.waiting import until

pytestmark = pytest.mark.fleet

CODE = """
import os, time
from pathlib import Path
from nova_workers.sdk import Context, Message, agent

HERE = Path(__file__).parent.parent

def did(name):
    with (HERE / "done").open("a") as file:
        file.write(f"{name} {os.getpid()}\\n")
    return name

def blocks():
    did("second")
    while not (HERE / "go").exists():
        time.sleep(0.01)
    return "two"

@agent
async def work(ctx: Context, message: Message) -> str:
    one = await ctx.step("first", did, "one")
    ctx.emit("Half. ")
    two = await ctx.step("second", blocks)
    three = await ctx.step("third", did, "three")
    return f"{one} {two} {three}"
"""


def _done(folder: Path) -> list[tuple[str, int]]:
    file = folder / "done"
    lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
    return [(name, int(pid)) for name, pid in map(str.split, lines)]


@proves("code.resumed")
async def test_code_of_a_killed_worker_goes_on_elsewhere_after_its_last_finished_step(
    env: dict[str, str], database: Database, tmp_path: Path
) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "code" / "work.py").write_text(CODE, encoding="utf-8")
    key, tenant = await add_api_key(env["NOVA_DATABASE_URL"])
    project = {"name": "shop", "folder": str(tmp_path), "tenant": tenant}
    own = {"NOVA_TOOLS__PROJECTS": json.dumps([project])}
    async with Fleet({**env, **own}, workers=1, beat=True, api_key=key) as fleet:
        spec = {"id": "worker", "name": "Worker", "engine": "code", "engine_config": {"agent": "shop:work"}}
        await fleet.client.agents.create(AgentCreate.model_validate(spec))
        run = await fleet.client.runs.create(StatelessRunCreate(message="go", agent_id="worker"))
        await until(lambda: len(_done(tmp_path)) == 2)
        (_, first), _ = _done(tmp_path)
        fleet.workers[0].kill()
        # Its process does not outlive it, and so executes nothing beside the next one.
        assert not wait_until_gone([first], timeout_s=20)
        await fleet.start_worker()
        await until(lambda: len(_done(tmp_path)) == 3)
        (tmp_path / "go").touch()
        ended = await fleet.client.runs.result(run.id, timeout_s=60)
        assert (ended.status, ended.text, ended.attempt) == ("succeeded", "one two three", 2), ended.error
        assert [name for name, _ in _done(tmp_path)] == ["one", "second", "second", "three"]
        rows = await database.fetch("SELECT step, tool_name, params->>'name', status FROM tool_calls ORDER BY sequence")
        assert [tuple(row) for row in rows] == [
            (0, "Step", "first", "completed"),
            (1, "Step", "second", "completed"),
            (2, "Step", "third", "completed"),
        ]
        assert await database.fetchval("SELECT count(*) FROM usage WHERE run_id = :run_id", run_id=run.id) == 1
