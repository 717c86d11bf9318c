"""How long the fleet takes to start: `nova up` as users run it, and what its processes import."""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from tests.bench.figures import Figure, Result
from tests.bench.installed import installed_environment, running_up
from tests.bench.stage import Bench

__all__ = ["measure_start"]

_WARM_S = 7.0
_API_IMPORT_S = 1.2
_WORKER_IMPORT_S = 2.5

_IMPORT = """
from nova_workers.program import collect_seldom
collect_seldom()
import time, {module}
print(time.process_time())
"""
_UNUSED_SERVERS = {"NOVA_DATABASE_URL": "postgresql://unused", "NOVA_REDIS_URL": "redis://unused"}


async def measure_start(bench: Bench) -> Result:
    """Start the whole fleet on an empty home, then again on the same, and import what its processes import."""
    with tempfile.TemporaryDirectory(prefix="nova-bench-") as folder:
        home = Path(folder)
        first_s = await _time_up(home)
        warm_s = min([await _time_up(home) for _ in range(bench.sizes.starts)])
    api_s, worker_s = [
        min([await _import_cpu_s(module) for _ in range(bench.sizes.starts)])
        for module in ("api.app", "nova_workers.worker.app")
    ]
    return Result(
        "start",
        "`nova up` until the fleet is up, with data of an earlier start",
        (
            Figure("", warm_s, "s", bound=_WARM_S),
            Figure("first start, on an empty home", first_s, "s"),
            Figure("CPU of importing the API", api_s, "s", bound=_API_IMPORT_S),
            Figure("CPU of importing the worker's app", worker_s, "s", bound=_WORKER_IMPORT_S),
        ),
        notes=(f"The best of {bench.sizes.starts}, but for the first start. Python's bytecode is compiled already.",),
    )


async def _time_up(home: Path) -> float:
    began_s = time.perf_counter()
    async with running_up(home):
        return time.perf_counter() - began_s


async def _import_cpu_s(module: str) -> float:
    child = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", _IMPORT.format(module=module)),
        env=installed_environment(_UNUSED_SERVERS),
        stdout=asyncio.subprocess.PIPE,
    )
    out, _ = await child.communicate()
    return float(out)
