"""What importing the client costs and loads, seen in a fresh process."""

from __future__ import annotations

import json
import os
import subprocess
import sys

MOST_CPU_S = 0.4

ALLOWED = frozenset(
    "annotated_types anyio certifi h11 httpcore2 httpx2 idna nova_workers pydantic pydantic_core rfc8785 truststore "
    "typing_extensions typing_inspection ulid".split()
)
"""Top-level packages that may be loaded, beside the standard library."""

_OURS = frozenset({"client", "contracts", "errors", "ids", "validation", "vocabulary"})
"""Our rooms that may be loaded: no server, engine or model is among them."""

_PROBE = """
import json, sys, time
before, begun_s = set(sys.modules), time.process_time()
from nova_workers.client import NovaClient, SyncNovaClient
took_s = time.process_time() - begun_s
print(json.dumps([took_s, sorted(set(sys.modules) - before)]))
"""


def _probe() -> tuple[float, list[str]]:
    done = subprocess.run([sys.executable, "-c", _PROBE], capture_output=True, text=True, check=True)
    took_s, modules = json.loads(done.stdout)
    return took_s, modules


def test_importing_the_client_takes_little_time() -> None:
    # On a busy machine the same work takes up to twice the CPU time: processes share caches, and threads of a core.
    load = os.getloadavg()[0] / (os.cpu_count() or 1)
    assert min(_probe()[0] for _ in range(3)) < MOST_CPU_S * min(2, max(1, load))


def test_importing_the_client_loads_no_server_no_engine_and_no_model() -> None:
    _, modules = _probe()
    tops = {name.partition(".")[0] for name in modules if not name.startswith("_")} - sys.stdlib_module_names
    assert tops - ALLOWED == set()
    assert {name.split(".")[1] for name in modules if name.startswith("nova_workers.")} - _OURS == set()
