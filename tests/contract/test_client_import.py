"""What importing the client costs and loads, seen in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys

MOST_TIMES_LIBRARIES = 3.0
"""Of the time that its two libraries take, which is twice as much. A busy machine is slower with both."""

ALLOWED = frozenset(
    "annotated_types anyio certifi h11 httpcore2 httpx2 idna nova_workers pydantic pydantic_core rfc8785 "
    "truststore typing_extensions typing_inspection".split()
)
"""Top-level packages that may be loaded, beside the standard library."""

_OURS = frozenset({"client", "contracts"})
"""Our rooms that may be loaded: no server, engine or model is among them."""

_OF_THE_BASE = frozenset({"errors", "ids", "true_numbers", "validation", "vocabulary"})

_PROBE = """
import json, sys, time
before, begun_s = set(sys.modules), time.process_time()
{import_line}
took_s = time.process_time() - begun_s
print(json.dumps([took_s, sorted(set(sys.modules) - before)]))
"""
_CLIENT = "from nova_workers.client import NovaClient, SyncNovaClient"
_LIBRARIES = "import httpx2, pydantic"


def _probe(import_line: str) -> tuple[float, list[str]]:
    code = _PROBE.format(import_line=import_line)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    took_s, modules = json.loads(done.stdout)
    return took_s, modules


def test_importing_the_client_takes_little_time() -> None:
    ratios = [_probe(_CLIENT)[0] / _probe(_LIBRARIES)[0] for _ in range(3)]
    assert sorted(ratios)[1] < MOST_TIMES_LIBRARIES, ratios


def test_importing_the_client_loads_no_server_no_engine_and_no_model() -> None:
    _, modules = _probe(_CLIENT)
    tops = {name.partition(".")[0] for name in modules if not name.startswith("_")} - sys.stdlib_module_names
    assert tops - ALLOWED == set()
    ours = [name.split(".") for name in modules if name.startswith("nova_workers.")]
    # Groups of calls are loaded when they are used.
    assert [parts for parts in ours if "resources" in parts] == []
    assert {parts[1] for parts in ours} - _OURS == {"base"}
    assert {parts[2] for parts in ours if parts[1] == "base" and len(parts) > 2} - _OF_THE_BASE == set()
