"""Claims and ends of effects beside many others that are due."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Sequence
from datetime import timedelta

from nova_workers.base.vocabulary import EFFECT_KINDS
from nova_workers.domain.effects.sql import EffectEnd, claim_effects, settle_effects
from nova_workers.domain.upkeep.sql.overdue import has_due_effects
from tests.bench.growth.costs import WARM_UP, Cost, Operation, repeated
from tests.bench.growth.ground import Ground

_EMBEDDINGS = Operation("claim and end 16 embeddings")
_TITLE = Operation("claim and end a title, beside them")

_ANY = Operation("whether any is due, for the reconciler")

_BATCH = 16
_LEASE = timedelta(hours=1)

_THREAD = """
INSERT INTO threads (id, tenant_id, agent_id) VALUES ('thr_effects', :tenant_id, 'nova') ON CONFLICT DO NOTHING
"""
_RUNS = """
INSERT INTO runs (id, tenant_id, thread_id, agent_id, seq, content, status, finished_at)
SELECT 'run_effects' || i, :tenant_id, 'thr_effects', 'nova', i, '[]', 'succeeded', now()
  FROM generate_series(:before::int + 1, :size::int) AS i
"""
# Each run has both; a title is due when the embeddings of its run have ended, else later.
_EFFECTS = """
INSERT INTO effects (id, tenant_id, run_id, thread_id, kind, position, due_at)
SELECT 'eff_' || kind || i, :tenant_id, 'run_effects' || i, 'thr_effects', kind, position, now() + later
  FROM generate_series(:before::int + 1, :size::int) AS i,
       (VALUES ('embeddings', 2, interval '0'), ('title', 3, interval '1 hour')) AS of (kind, position, later)
"""


async def measure_effects(ground: Ground, sizes: Sequence[int]) -> AsyncGenerator[Cost]:
    """Leave the effects of ever more runs undone, and do some of them."""
    before = 0
    for size in sizes:
        # With the plans of a session that knew fewer.
        await ground.write(
            {"threads": _THREAD, "runs": _RUNS, "effects": _EFFECTS},
            vacuum=False, tenant_id=ground.tenant_id, before=before, size=size,
        )  # fmt: skip
        before = size
        taken_s: dict[Operation, list[float]] = {_EMBEDDINGS: [], _TITLE: []}
        for number in range(WARM_UP + ground.repeats):
            # The embeddings first: their end makes titles due.
            for operation, kind, most in ((_EMBEDDINGS, "embeddings", _BATCH), (_TITLE, "title", 1)):
                took_s = await _do(ground, kind, most)
                if number >= WARM_UP:
                    taken_s[operation].append(took_s)
        for operation, each_s in taken_s.items():
            yield Cost.of(operation, size, each_s)
        yield Cost.of(
            _ANY,
            size,
            await repeated(
                ground.on_connection(lambda connection: has_due_effects(connection, EFFECT_KINDS)), ground.repeats
            ),
        )


async def _do(ground: Ground, kind: str, most: int) -> float:
    async with ground.database.connection() as connection:
        began_s = time.perf_counter()
        found = await claim_effects(connection, [(kind, most)], max_attempts=3, lease=_LEASE)
        ended = await settle_effects(connection, [EffectEnd(effect, "done") for effect in found.claimed])
        took_s = time.perf_counter() - began_s
    assert ended == most, (kind, ended)
    return took_s
