"""Operations on one thread with many turns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence

from nova_workers.domain.threads.sql.history import load_history_turns
from tests.bench.growth.costs import WARM_UP, Cost, Operation, repeated
from tests.bench.growth.finished_runs import cycle_seconds
from tests.bench.growth.ground import Ground

_KEPT = 20
"""Turns since the last compaction."""

_MESSAGES = Operation("GET /v1/threads/{id}/messages, first 50")
_FEW = "The smallest thread has only ten."
_TURNS = Operation("GET /v1/threads/{id}/turns, last 50", grows=_FEW)
_COMPACTED = Operation(f"history for the model, compacted {_KEPT} turns ago", grows=_FEW)
_WHOLE = Operation(
    "history for the model, never compacted",
    grows="It is all of the conversation. A model's context limits it: the engine compacts before the window is full.",
)

_THREAD = """
INSERT INTO threads (id, tenant_id, agent_id, head_turn_id, fence, next_seq, turn_count)
VALUES (:thread_id, :tenant_id, 'nova', 'turn_' || :thread_id || '_' || (:size::int - 1), :size::int, :size::int + 1,
        :size::int)
"""
_ROWS = """
INSERT INTO turns (id, tenant_id, thread_id, run_id, parent_turn_id, depth, type, status, agent_id, agent_version,
                   engine, model, completed_at)
SELECT 'turn_' || :thread_id || '_' || i, :tenant_id, :thread_id, 'run_' || :thread_id || '_' || i,
       CASE WHEN i > 0 THEN 'turn_' || :thread_id || '_' || (i - 1) END, i,
       CASE i WHEN :compacted_at::int THEN 'compaction' ELSE 'normal' END, 'succeeded', 'nova', 1, 'scripted',
       'scripted', now()
  FROM generate_series(0, :size::int - 1) AS i
"""
_SAID = """
INSERT INTO messages (id, tenant_id, thread_id, turn_id, run_id, seq, step, kind, role, content)
SELECT 'msg_' || :thread_id || '_' || i || '_' || m, :tenant_id, :thread_id, 'turn_' || :thread_id || '_' || i,
       'run_' || :thread_id || '_' || i, m, NULLIF(m, 0) - 1, CASE m WHEN 0 THEN 'query' ELSE 'response' END,
       CASE m WHEN 0 THEN 'user' ELSE 'assistant' END,
       '[{"text": "How long does this take, said the owner of the thread?", "type": "text"}]'
  FROM generate_series(0, :size::int - 1) AS i, generate_series(0, 1) AS m
"""
_COMPACTION = """
INSERT INTO compactions (turn_id, tenant_id, summary, summarized_through_turn_id, model, provider, trigger)
SELECT 'turn_' || :thread_id || '_' || :compacted_at::int, :tenant_id, 'They asked how long it takes.',
       'turn_' || :thread_id || '_' || (:compacted_at::int - 1), 'scripted', 'scripted', 'context_limit'
 WHERE :compacted_at::int > 0
"""
_HEAD = "SELECT head_turn_id FROM threads WHERE id = :thread_id"


async def measure_long_threads(ground: Ground, sizes: Sequence[int]) -> AsyncGenerator[Cost]:
    """Measure on a thread of each size, and on one of that size that was compacted."""
    for size in sizes:
        whole, compacted = f"thr_whole{size}", f"thr_compacted{size}"
        for thread_id, compacted_at in ((whole, -1), (compacted, size - _KEPT)):
            await ground.write(
                {"threads": _THREAD, "turns": _ROWS, "messages": _SAID, "compactions": _COMPACTION},
                tenant_id=ground.tenant_id, thread_id=thread_id, size=size, compacted_at=compacted_at,
            )  # fmt: skip
        for operation, path in (
            (_MESSAGES, f"/v1/threads/{whole}/messages?limit=50"),
            (_TURNS, f"/v1/threads/{whole}/turns?limit=50"),
        ):
            yield Cost.of(operation, size, await repeated(ground.get(path), ground.repeats))
        for operation, thread_id in ((_COMPACTED, compacted), (_WHOLE, whole)):
            yield Cost.of(operation, size, await _history(ground, thread_id))
        for operation, taken_s in (await cycle_seconds(ground, [whole] * (ground.repeats + WARM_UP))).items():
            yield Cost.of(operation, size, taken_s)


async def _history(ground: Ground, thread_id: str) -> list[float]:
    head = await ground.database.fetchval(_HEAD, thread_id=thread_id)
    read = ground.on_connection(lambda connection: load_history_turns(connection, ground.tenant_id, head))
    return await repeated(read, ground.repeats)
