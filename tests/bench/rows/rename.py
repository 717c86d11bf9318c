"""How long an agent with a past is paused while it is renamed."""

import time

from nova_workers.base.config import Settings
from nova_workers.contracts.agents import AgentSpec
from nova_workers.domain.agents.rules.ceilings import CeilingRules
from nova_workers.domain.agents.rules.service import PERSON, Agents
from nova_workers.domain.agents.sql.records import create_agent
from nova_workers.domain.capabilities.rules.registry import CapabilityRegistry
from nova_workers.domain.upkeep.rules.agent_moves import AgentMoves
from nova_workers.ledger.database import PostgresDatabase
from nova_workers.ledger.work import Work
from tests.bench.figures import Figure, Result
from tests.bench.servers import filling
from tests.bench.stage import Bench

_TENANT = "ten_bench"
_OLD, _NEW = "support", "helpdesk"
_MOST_S = 10.0
_PATIENCE_S = 600.0

# A thread for each run, with two messages. No foreign key is checked in this session: the messages are not needed.
_FILL = (
    """INSERT INTO threads (id, tenant_id, agent_id, next_seq)
       SELECT 'thr_' || n, :tenant_id, :agent_id, 2 FROM generate_series(1, :runs::int) n""",
    """INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, turn_id)
       SELECT 'run_' || id, tenant_id, id, agent_id, 1, '[]', 'succeeded', 'turn_' || id FROM threads""",
    """INSERT INTO turns (id, tenant_id, thread_id, run_id, agent_id, status)
       SELECT turn_id, tenant_id, thread_id, id, agent_id, 'succeeded' FROM runs""",
    """INSERT INTO usage (id, tenant_id, run_id, turn_id, thread_id, agent_id)
       SELECT 'use_' || id, tenant_id, id, turn_id, thread_id, agent_id FROM runs""",
    """INSERT INTO message_texts (message_id, tenant_id, agent_id, thread_id, role, content, said_at)
       SELECT 'msg_' || id || n, tenant_id, agent_id, id, 'user',
              (SELECT string_agg('w' || (random() * 30000)::int, ' ') FROM generate_series(1, 40) WHERE id <> ''), now()
         FROM threads, generate_series(1, 2) n""",
    """INSERT INTO embeddings (id, tenant_id, agent_id, thread_id, message_id, model, dimensions, embedding)
       SELECT 'emb_' || message_id, tenant_id, agent_id, thread_id, message_id, 'bench', 384,
              (SELECT array_agg(random() - 0.5) FROM generate_series(1, 384) WHERE message_id <> '')::vector
         FROM message_texts""",
)


async def measure_rename(bench: Bench) -> Result:
    """Rename an agent with a thread, a run and two indexed messages for each of many runs."""
    runs = bench.sizes.renamed_runs
    async with bench.servers.fresh_database() as url:
        await _fill(url, runs)
        database = PostgresDatabase(url, pool_size=2)
        try:
            began_s = time.perf_counter()
            rename = await Agents(database, CapabilityRegistry(), CeilingRules.of(Settings())).begin_rename(
                _TENANT, _OLD, _NEW, actor=PERSON
            )
            begun_s = time.perf_counter() - began_s
            assert await AgentMoves(Work(database)).start(rename, patience_s=_PATIENCE_S)
            took_s = time.perf_counter() - began_s
        finally:
            await database.close()
    return Result(
        "rename",
        f"rename of an agent with {runs:,} runs, until its next run may start",
        (
            Figure("", took_s, "s", bound=_MOST_S),
            Figure("runs moved", runs / took_s, "a second"),
            Figure("first transaction", begun_s * 1000, "ms"),
        ),
        notes=("Each run has a thread, a turn, a row of usage, and two messages with words and vectors.",),
    )


async def _fill(url: str, runs: int) -> None:
    async with filling(url) as database, database.connection() as connection:
        await connection.execute("INSERT INTO tenants (id, name) VALUES (:tenant_id, 'bench')", tenant_id=_TENANT)
        await create_agent(connection, _TENANT, _OLD, AgentSpec(name="Support"), created_by=PERSON)
        await connection.execute("SET session_replication_role = replica")
        first, *others = _FILL
        await connection.execute(first, tenant_id=_TENANT, agent_id=_OLD, runs=runs)
        for statement in others:
            await connection.execute(statement)
        for table in ("threads", "runs", "turns", "usage", "message_texts", "embeddings"):
            await connection.execute(f"VACUUM ANALYZE {table}")
