"""Two versions of the claim's statement side by side: what a change of it did to the time of a claim.

    python -m tests.bench.side_by_side.claims HEAD~1

Both claim in turns on the same database, so load on the machine affects both. The other version is that of a revision
of this repository whose statement this checkout's schema can execute.
"""

import argparse
import asyncio
import importlib.util
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from nova_workers.base.ids import new_id
from nova_workers.contracts.content import text_block
from nova_workers.contracts.runs import Claim, Submission
from nova_workers.domain.agents.sql.records import seed_defaults
from nova_workers.domain.runs.sql import claim as this_claim
from nova_workers.domain.runs.sql.finish import finish_run
from nova_workers.domain.runs.sql.submit import insert_run, insert_run_on_new_thread
from nova_workers.domain.tenants.sql.settings import ensure_tenant
from nova_workers.ledger.database import Database, PostgresDatabase
from tests.bench.ends import PLAIN_END
from tests.bench.servers import Servers, bench_servers

_HERE = Path(__file__).resolve().parents[3]
_TENANT = "ten_bench"
_MODULE = Path(this_claim.__file__).relative_to(_HERE)

_ROLLOUT = """
INSERT INTO rollouts (id, tenant_id, agent_id, version, baseline_version, steps, guardrails, share)
VALUES ('rol_bench', :tenant_id, 'nova', 1, 1, '[]', '[]', 5000)
"""

_ClaimNext = Callable[..., Awaitable[Any]]
_Times = dict[str, list[float]]


def claim_of(revision: str) -> _ClaimNext:
    """Return the function that claims, as it was in a revision."""
    shown = subprocess.run(
        ["git", "-C", str(_HERE), "show", f"{revision}:{_MODULE}"], check=True, capture_output=True
    ).stdout
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "other_claim.py"
        path.write_bytes(shown)
        spec = importlib.util.spec_from_file_location("other_claim", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules["other_claim"] = module
        spec.loader.exec_module(module)
    # Each module has its own results; the two are compared by their name.
    return module.claim_next


async def _claim(database: Database, claim_next: _ClaimNext, thread_id: str | None) -> tuple[float, str]:
    """Submit, claim and finish one run; return how long the claim took, and its thread."""
    submission = Submission(
        _TENANT, (text_block("And again?"),), thread_id=thread_id, agent_id=None if thread_id else "nova"
    )
    insert = insert_run_on_new_thread if thread_id is None else insert_run
    async with database.connection() as connection:
        accepted = await insert(connection, submission, new_id("run"))
        assert accepted is not None
        began_s = time.perf_counter()
        claim = await claim_next(connection, accepted.thread_id, worker_id="wkr_bench", lease_ttl_s=30, max_attempts=5)
        took_s = time.perf_counter() - began_s
        assert isinstance(claim, Claim)
        await finish_run(connection, claim, PLAIN_END, seq=1)
    return took_s, accepted.thread_id


async def _measure(url: str, versions: dict[str, _ClaimNext], options: argparse.Namespace) -> _Times:
    database = PostgresDatabase(url, pool_size=1)
    times: _Times = {name: [] for name in versions}
    try:
        async with database.transaction() as connection:
            await ensure_tenant(connection, _TENANT, "bench")
            await seed_defaults(connection, _TENANT)
            if options.rollout:
                await connection.execute(_ROLLOUT, tenant_id=_TENANT)
        threads = [(await _claim(database, this_claim.claim_next, None))[1] for _ in range(options.threads)]
        for number in range(options.claims):
            thread_id = threads[number % len(threads)]
            for name in sorted(versions, reverse=bool(number % 2)):
                took_s, _ = await _claim(database, versions[name], thread_id)
                times[name].append(took_s)
    finally:
        await database.close()
    return times


async def _in_turns(servers: Servers, versions: dict[str, _ClaimNext], options: argparse.Namespace) -> _Times:
    async with servers.fresh_database() as url:
        return await _measure(url, versions, options)


def _compare(options: argparse.Namespace) -> None:
    versions = {"this": this_claim.claim_next, options.revision: claim_of(options.revision)}
    with bench_servers() as servers:
        times = asyncio.run(_in_turns(servers, versions, options))
    for name, took_s in times.items():
        tenths = statistics.quantiles(took_s, n=10)
        print(f"{name}: median {tenths[4] * 1000:.3f} ms, tenth {tenths[0] * 1000:.3f} ms of {len(took_s):,} claims")
    more_ms = (statistics.median(times["this"]) - statistics.median(times[options.revision])) * 1000
    print(f"difference of the medians: {more_ms:+.3f} ms")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("revision", help="the other version: any revision that git knows")
    parser.add_argument("--claims", type=int, default=10_000, help="of each version")
    parser.add_argument("--rollout", action="store_true", help="with an open rollout of the agent")
    parser.add_argument("--threads", type=int, default=200)
    _compare(parser.parse_args())
