"""Changes on their way to customers: `docs/releases.md`, played whole, and evaluations before an apply."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.contracts.abort import AbortSignal
from nova_workers.contracts.content import JsonObject, text_of
from nova_workers.contracts.engine import EngineOptions, EngineResult, TrustLevel, TurnListener
from nova_workers.domain.evaluations.rules.tick import EvaluationTicker
from nova_workers.domain.evaluations.rules.verdicts import Judges
from nova_workers.domain.rollouts.rules.service import RolloutSweep
from nova_workers.engines.scripted import ScriptedEngine
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import served
from tests.integration.api.manual_worker import make_tenant
from tests.requirements import proves
from tests.support.data.documents import ROOT, Block, blocks, commands
from tests.support.harness.workers import Harness, Worker
from tests.support.processes.command_line import Done, Nova

_PAGE = ROOT / "docs" / "releases.md"
_PROMISED_RUNS = 200
"""A candidate that fails 20 points more is stopped within so many of its runs (docs/rollouts.md)."""
_AT_ONCE = 20
_NORWAY, _RETURN = "What does shipping to Norway cost?", "How do I send a parcel back?"
_FILES = {"price.json": 0, "answered.json": 1}
"""The evaluators' files, by the places of their blocks on the page."""
_DUE = "UPDATE rollouts SET step_ends_at = now() WHERE step_ends_at IS NOT NULL"
_CANDIDATES = "SELECT count(*)::int FROM turns WHERE agent_version = :version AND rollout_id IS NOT NULL"
_STATUS = "SELECT status FROM rollouts ORDER BY id DESC LIMIT 1"


class _Models:
    """Models that know the price of their instructions. The small one fails on questions about returns."""

    name = "scripted"

    def __init__(self) -> None:
        self._scripted = ScriptedEngine(environment="development")

    async def run(
        self,
        message: str | tuple[JsonObject, ...],
        options: EngineOptions,
        trust: TrustLevel,
        session_id: str | None = None,
        callbacks: TurnListener | None = None,
        abort: AbortSignal | None = None,
    ) -> EngineResult:
        """Play the script that a model would be."""
        question = message if isinstance(message, str) else text_of(message)
        price = re.findall(r"\d+ EUR", options.system_prompt or "")[0]
        said: JsonObject = {"say": f"It costs {price}.", "usage": {"cost_usd": 0.001}}
        if question == _RETURN:
            said["say"] = "Within 14 days, with the label in the parcel."
            if "haiku" in (options.model or ""):
                said = {"error": {"message": "The model answered nonsense."}}
        scripted = replace(options, engine_config={"script": [said]})
        return await self._scripted.run(message, scripted, trust, session_id, callbacks, abort)

    async def close(self) -> None:
        """Close what plays scripts."""
        await self._scripted.close()


class _Story:
    """The page, whose commands are played one by one, and the customers who write meanwhile."""

    def __init__(self, nova: Nova, harness: Harness, worker: Worker, directory: Path) -> None:
        self.harness = harness
        self._nova = nova
        self._worker = worker
        self._sweep = RolloutSweep(harness.work)
        self._ticker = EvaluationTicker(harness.work, SystemClock(), Judges(None))
        self._commands = [*blocks("sh", _PAGE)]
        self._outputs = {block.line: block for block in blocks("text", _PAGE)}
        files = blocks("json", _PAGE)
        self._known: dict[str, str] = {}
        for name, place in _FILES.items():
            (directory / name).write_text(files[place].text, encoding="utf-8")
            self._known[name] = str(directory / name)

    def knows(self, run_id: str) -> None:
        """Keep the id of the run that the page calls ``run_01J…``."""
        self._known["run_01J…"] = run_id

    async def play(self, *begins: str) -> None:
        """Play the next command of the page, which begins so, and compare its output with the page's."""
        block = self._commands.pop(0)
        [[program, *words]] = commands(block)
        assert (program, *words[: len(begins)]) == ("nova", *begins), block
        done = await self.run(*[self._known.get(word, word) for word in words])
        assert done.code == 0, (block, done)
        # The fence of the command, an empty line, and the fence of its output.
        shown = self._outputs.get(block.line + block.text.count("\n") + 3)
        if shown is not None:
            _compare(shown, done.out)

    async def run(self, *words: str) -> Done:
        """Run a command, and what the fleet does meanwhile."""
        running = asyncio.create_task(asyncio.to_thread(self._nova, *words))
        while not running.done():
            await self._ticker.tick()
            await self.harness.settle(self._worker)
            await asyncio.wait({running}, timeout=0.1)
        return running.result()

    @property
    def is_over(self) -> bool:
        """Whether all commands of the page were played."""
        return not self._commands

    async def ask(self, *questions: str) -> list[str]:
        """Let customers ask, each in a conversation of their own, and return the runs."""
        accepted = [await self.harness.submit(question, agent_id="shop") for question in questions]
        await self.harness.settle(self._worker)
        await self._sweep.sweep()
        return [one.run_id for one in accepted]

    async def status(self) -> str:
        """Return the status of the newest rollout."""
        return await self.harness.database.fetchval(_STATUS)

    async def candidates(self, version: int) -> int:
        """Return how many runs a candidate has had."""
        return await self.harness.database.fetchval(_CANDIDATES, version=version)

    async def let_time_pass(self) -> None:
        """Let the time of the rollout's step be over."""
        await self.harness.database.execute(_DUE)
        await self._sweep.sweep()


def _compare(shown: Block, output: str) -> None:
    """Find each line of the page in an output, whose ids, times and long texts are ``…`` there."""
    lines = [" ".join(line.split()) for line in output.splitlines()]
    for line in filter(None, (" ".join(line.split()) for line in shown.text.splitlines())):
        wanted = ".*".join(map(re.escape, line.split("…")))
        assert any(re.fullmatch(wanted, each) for each in lines), (str(shown), line, output)


@pytest.fixture
async def story(database: Database, redis: Redis, settings: Settings, tmp_path: Path) -> AsyncIterator[_Story]:
    harness = Harness(database, redis, settings)
    await harness.open()
    harness.engines["anthropic"] = _Models()
    tenant = await make_tenant(database, tenant_id=harness.tenant_id)
    # The API logs into the same streams.
    with capture_logs():
        async with served(settings) as (url, _):
            env = {"NOVA_HOME": str(tmp_path), "NOVA_API_URL": url, "NOVA_API_KEY": tenant.key, "NO_COLOR": "1"}
            yield _Story(Nova(env), harness, harness.worker(), tmp_path)
    await harness.close()


@proves("rollouts.story")
async def test_a_complaint_becomes_a_dataset_a_fix_a_canary_that_is_stopped_and_a_release(story: _Story) -> None:
    await story.play("agents", "create", "shop")
    complained, _ = await story.ask(_NORWAY, _RETURN)
    story.knows(complained)
    await story.play("runs", "rate")
    await story.play("datasets", "create")
    await story.play("datasets", "take")
    await story.play("agents", "edit")
    await story.play("evals", "run")

    await story.play("rollout", "start")
    while await story.status() == "running":
        assert await story.candidates(2) <= _PROMISED_RUNS
        await story.ask(*[_NORWAY, _RETURN, _RETURN, _RETURN] * (_AT_ONCE // 4))
    assert await story.candidates(2) <= _PROMISED_RUNS
    await story.play("rollout", "status")

    await story.play("datasets", "create")
    await story.play("datasets", "take")
    await story.play("agents", "edit")
    await story.play("evals", "run")
    await story.play("evals", "run")
    await story.play("rollout", "start")
    while await story.status() == "running":
        await story.ask(*[_NORWAY, _RETURN] * (_AT_ONCE // 2))
        await story.let_time_pass()
    await story.play("rollout", "status")
    assert story.is_over
    [answered] = await story.ask(_NORWAY)
    run = await story.harness.run(answered)
    assert (run["agent_version"], run["result_text"]) == (3, "It costs 12 EUR.")


@proves("projects.gate")
async def test_an_apply_leaves_an_agent_that_does_not_pass_its_evaluation_as_it_is(
    story: _Story, tmp_path: Path
) -> None:
    project = tmp_path / "project"
    (project / "agents").mkdir(parents=True)
    (project / "pyproject.toml").write_text('[project]\nname = "story"\n')

    def write(agent: str, price: int) -> None:
        (project / "agents" / f"{agent}.md").write_text(f"---\nname: {agent}\n---\nNorway: {price} EUR.\n")

    async def applied(code: int, *words: str) -> str:
        done = await story.run("apply", "--yes", "-C", str(project), *words)
        assert done.code == code, done
        return done.out + done.err

    async def version(agent: str) -> int:
        return (await story.run("agents", "show", agent, "--json")).json["version"]

    (project / "evaluations.yaml").write_text(
        "shop:\n  dataset: prices\n  evaluators:\n    - {kind: contains, texts: [12 EUR]}\n"
    )
    write("shop", 10)
    assert "shop is new, and made without an evaluation." in await applied(0)
    await story.run("datasets", "create", "prices")
    await story.run("datasets", "add", "prices", _NORWAY)
    write("shop", 11)
    write("clerk", 11)
    planned = await story.run("plan", "-C", str(project))
    assert "shop is evaluated over prices, and applied if it passes 100.0%." in planned.err
    refused = await applied(5)
    assert "story: 1 made; 1 unchanged." in refused
    assert "shop was not applied: done, 1 of 1 answers; passed: 0.0%; below the threshold of 100.0%." in refused
    assert (await version("shop"), await version("clerk")) == (1, 1)
    write("shop", 12)
    assert "story: 1 changed; 1 unchanged." in await applied(0)
    assert "12 EUR" in (await story.run("agents", "show", "shop")).out
