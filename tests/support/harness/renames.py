"""Renames of agents of a harness, step by step."""

from __future__ import annotations

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.agents.rules.service import PERSON, Agents
from nova_workers.domain.agents.sql.renames import Rename
from nova_workers.domain.capabilities.rules.discovery import default_registry
from nova_workers.domain.upkeep.rules.agent_moves import AgentMoves
from nova_workers.ledger.database import Database
from nova_workers.ledger.work import Work
from tests.support.harness.workers import Harness


async def begin_rename(harness: Harness, old: str, new: str, *, database: Database | None = None) -> Rename:
    """Give an agent another id; its rows stay where they are."""
    database = database or harness.database
    agents = Agents(database, default_registry(database, Settings(), SystemClock()), CeilingRules.of(Settings()))
    return await agents.begin_rename(harness.tenant_id, old, new, actor=PERSON)


async def move_all(harness: Harness, *, database: Database | None = None) -> None:
    """Move all that can move now, as the ticks of a process that has only the ledger."""
    moves = AgentMoves(Work(database or harness.database, harness.bells))
    while await moves.step():
        pass


async def rename(harness: Harness, old: str, new: str) -> None:
    """Rename an agent, whole."""
    moves = AgentMoves(harness.work)
    assert await moves.start(await begin_rename(harness, old, new), patience_s=10)
