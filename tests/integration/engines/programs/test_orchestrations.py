"""Agents on vendors' programs in a tree: a master that delegates, and a peer whose conversation continues."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base.config import Settings
from nova_workers.domain.orchestrations.rules.config.values import OrchestrationConfig
from nova_workers.ledger.database import Database
from tests.integration.engines.programs.stage import ProgramStage
from tests.requirements import proves
from tests.support.harness.invariants import check_any_time, check_heads
from tests.support.harness.trees import Forest, call
from tests.support.harness.workers import Harness
from tests.support.servers.model_server import Asks


@pytest.fixture
async def forest(stage: ProgramStage, database: Database, redis: Redis, settings: Settings) -> AsyncIterator[Forest]:
    """A fleet on this test's loop with an agent on the program."""
    harness = Harness(database, redis, settings)
    harness.engines[stage.name] = stage.engine()
    harness.available.add(stage.name)
    harness.patience_s = 60.0
    await harness.open()
    spec = {"name": "Lead", "engine": stage.name, "model": stage.model, "trust": "unrestricted"}
    await harness.add_agent("lead", spec)
    yield Forest(harness)
    await harness.close()


def _config(stage: ProgramStage) -> OrchestrationConfig:
    return OrchestrationConfig.model_validate(
        {
            "providers": {"vendor": {"engine": stage.name}},
            "models": {stage.model: {"provider": "vendor", "model_id": stage.model}},
        }
    )


def _asks(word: str) -> Asks:
    """Return a rule for requests whose conversation has the word."""

    def asks(_: Mapping[str, str], body: dict[str, Any]) -> bool:
        return word in str({key: value for key, value in body.items() if key != "tools"})

    return asks


@proves("engine.programs")
async def test_a_master_on_a_program_spawns_a_worker_and_sums_up(forest: Forest, stage: ProgramStage) -> None:
    stage.server.reply_when(_asks("The bug is in parse()."), stage.says("In parse(), says my worker."))
    stage.server.reply_when(_asks("LEAD THIS"), stage.calls(("spawn_child", {"prompt": "SEARCH THAT"}), text="Go."))
    stage.server.reply_when(
        _asks("SEARCH THAT"), stage.calls(("task_complete", {"summary": "The bug is in parse()."})), stage.says("Done.")
    )
    started = await forest.run(agent_id="lead", task="LEAD THIS")
    master, worker = await forest.agents(started)
    assert (master.state, worker.state) == ("COMPLETED", "COMPLETED")
    assert (worker.role, worker.summary) == ("WORKER", "The bug is in parse().")
    assert master.summary == "In parse(), says my worker."
    await check_any_time(forest.harness.database)
    await check_heads(forest.harness.database)


async def test_a_peer_on_a_program_is_asked_again_in_its_conversation(forest: Forest, stage: ProgramStage) -> None:
    stage.server.reply_when(_asks("Why a queue?"), stage.says("Because of order."))
    stage.server.reply_when(_asks("Stack or queue?"), stage.says("Use a queue."))
    await forest.run(
        call("consult_peer", question="Stack or queue?", peer=stage.model),
        call("consult_peer", question="Why a queue?", thread_id="oag"),
        {"say": "done"},
        config=_config(stage),
    )
    assert "Use a queue." in stage.sent()
    assert "Why a queue?" in stage.sent()
    rows = await forest.harness.database.fetch("SELECT result FROM tool_calls ORDER BY sequence")
    assert "Use a queue." in str(rows[0]["result"])
    assert "Because of order." in str(rows[1]["result"])
