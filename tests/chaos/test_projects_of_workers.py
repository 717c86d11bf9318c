"""Runs that need a project are executed by workers that have it, in the version of the code that began them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nova_workers.base.errors import Conflict
from nova_workers.base.wheels import ProjectWheel
from nova_workers.contracts.http.projects import ProjectApply, ProjectPlan
from nova_workers.contracts.http.wire import RunView, StatelessRunCreate
from nova_workers.contracts.waits import RunAnswer
from tests.requirements import proves
from tests.support.processes.fleet import Fleet, FleetProcess, add_api_key
from tests.support.waiting import until

pytestmark = [pytest.mark.fleet, pytest.mark.begins_first]

CODE = """
from nova_workers.sdk import Context, Message, agent

@agent
async def work(ctx: Context, message: Message) -> str:
    if message.text == "at once":
        return VERSION
    return f"{VERSION} {await ctx.ask_user('Go on?')}"
"""
LACKS = "a worker that has the project 'shop'"


def _wheel(folder: Path, version: str) -> Path:
    files = {
        "pyproject.toml": f'[project]\nname = "shop"\nversion = "{version}"\n'.encode(),
        "code/work.py": f"VERSION = {version!r}\n{CODE}".encode(),
    }
    wheel = ProjectWheel("shop", version, files)
    path = folder / wheel.file_name
    path.write_bytes(wheel.to_bytes())
    return path


def _agent(agent_id: str, **config: str) -> dict[str, Any]:
    spec = {"engine": "code", "engine_config": {"agent": "shop:work", **config}, "capabilities": {"user": {}}}
    return {"id": agent_id, "name": "Work", **spec}


class _Shop:
    """A fleet whose workers differ in what is installed."""

    def __init__(self, fleet: Fleet, tenant: str) -> None:
        self.fleet = fleet
        self._tenant = tenant

    def projects(self, *wheels: Path) -> dict[str, str]:
        given = [{"wheel": str(wheel), "tenant": self._tenant} for wheel in wheels]
        return {"NOVA_TOOLS__PROJECTS": json.dumps(given)}

    async def start(self, wheel: Path) -> tuple[FleetProcess, list[str]]:
        """Start a worker, and return it with its projects as people see them."""
        worker = await self.fleet.start_worker(env=self.projects(wheel))
        row = await self.fleet.worker_ready(worker)
        return worker, [each.label.partition(" (")[0] for each in row.projects]

    async def apply(self, *, allow_missing: bool = False) -> ProjectPlan:
        """Apply the project, which has two agents."""
        agents = [_agent("worker"), _agent("careful", on_new_version="refuse")]
        body = {"project": "shop", "agents": agents, "allow_missing": allow_missing}
        return await self.fleet.client.projects.apply(ProjectApply.model_validate(body))

    async def send(self, agent_id: str, text: str = "ask") -> str:
        return (await self.fleet.client.runs.create(StatelessRunCreate(message=text, agent_id=agent_id))).id

    async def begin(self, agent_id: str) -> str:
        """Return a run that waits for a person."""
        run_id = await self.send(agent_id)
        await self.seen(run_id, lambda run: run.status == "waiting")
        return run_id

    async def seen(self, run_id: str, fits: Callable[[RunView], bool]) -> None:
        async def look() -> bool:
            return fits(await self.fleet.client.runs.get(run_id))

        await until(look)

    async def answer(self, run_id: str) -> RunView:
        await self.fleet.client.runs.answer(run_id, RunAnswer(text="yes"))
        return await self.ended(run_id)

    async def ended(self, run_id: str) -> RunView:
        return await self.fleet.client.runs.result(run_id, timeout_s=60)


@proves("projects.routed", "projects.versions", "projects.missing")
async def test_runs_meet_a_worker_with_their_project_and_the_version_that_began_them(
    env: dict[str, str], tmp_path: Path
) -> None:
    first, second = _wheel(tmp_path, "1.0"), _wheel(tmp_path, "2.0")
    key, tenant = await add_api_key(env["NOVA_DATABASE_URL"])
    project = {"NOVA_TOOLS__PROJECTS": json.dumps([{"wheel": str(first), "tenant": tenant}])}
    async with Fleet({**env, **project}, workers=0, beat=True, api_key=key) as fleet:
        shop = _Shop(fleet, tenant)
        await fleet.start_worker(env=shop.projects())
        needs = "needs the agent 'work' of the project 'shop'"
        with pytest.raises(Conflict, match=f"no live worker has .*: 'worker' {needs}; 'careful' {needs}. Nothing was"):
            await shop.apply()
        assert len((await shop.apply(allow_missing=True)).missing) == 2

        # Without the project: visible at once, other agents go on, and it is executed when a worker comes.
        waiting = [await shop.send("worker", "at once") for _ in range(3)]
        for run_id in waiting:
            await shop.seen(run_id, lambda run: run.waiting_for == LACKS)
        assert (await shop.ended(await shop.send("nova", "hello"))).status == "succeeded"
        assert [(group.reason, group.runs) for group in (await fleet.client.fleet.queued()).groups] == [("project", 3)]
        one, projects = await shop.start(first)
        assert projects == ["shop 1.0"]
        assert (await shop.apply()).missing == []
        assert [(await shop.ended(run_id)).text for run_id in waiting] == ["1.0"] * 3

        # What the first version began, it finishes beside another version.
        begun = [await shop.begin("worker") for _ in range(3)]
        refusing = await shop.begin("careful")
        _, projects = await shop.start(second)
        assert projects == ["shop 2.0"]
        assert [(await shop.answer(run_id)).text for run_id in begun[:2]] == ["1.0 yes"] * 2

        # Where its workers have died, another version goes on, or refuses to.
        one.kill()
        assert (await shop.answer(begun[2])).text == "2.0 yes"
        refused = await shop.answer(refusing)
        assert refused.error is not None
        assert refused.error.message.startswith("The run was begun by version ")
        assert (await shop.ended(await shop.send("careful", "at once"))).text == "2.0"
