"""A real Prometheus scrapes a real fleet, and answers every query of the dashboards and rules."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import httpx2
import pytest

from nova_workers.base.config import Settings
from nova_workers.contracts.http.wire import StatelessRunCreate
from tests.support.data.documents import ROOT
from tests.support.processes.fleet import Fleet, fleet_env, free_port
from tests.support.waiting import until

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="the package prometheus is not installed"),
]

_FOLDER = ROOT / "deploy" / "monitoring"
_CONFIG = """
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: [{rules}]
scrape_configs:
  - job_name: nova-api
    static_configs: [{{targets: ["{api}"]}}]
  - job_name: nova-worker
    static_configs: [{{targets: ["{worker}"]}}]
"""


_LOAD = (
    "hello",
    json.dumps({"script": [{"tool": {"name": "memory_list", "input": {}}}, {"say": "Nothing."}]}),
    json.dumps({"script": [{"say": "Read before.", "usage": {"input_tokens": 9, "cache_read_tokens": 9}}]}),
    json.dumps({"script": [{"error": {"kind": "model_error", "message": "No.", "retryable": False}}]}),
)
_OF_LOAD = (
    "nova_runs_accepted",
    "nova_runs_claimed",
    "nova_runs_finished",
    "nova_runs_open",
    "nova_runs_in_flight",
    "nova_run_claim_latency",
    "nova_run_first_token",
    "nova_run_duration",
    "nova_queue_",
    "nova_tool_calls",
    "nova_tokens",
    "nova_event_lag",
    "nova_overdue_age",
    "nova_server_serves",
    "nova_loop_lag",
    "nova_http_",
    "process_",
)
"""Metrics that the load gives series: of others nothing happened."""


def _queries() -> list[str]:
    documents = [json.loads(path.read_text("utf-8")) for path in (_FOLDER / "dashboards").glob("*.json")]
    panels = [panel for document in documents for panel in document["panels"]]
    return [target["expr"] for panel in panels for target in panel["targets"] if "expr" in target]


@pytest.mark.long
async def test_each_query_is_answered_and_each_rule_is_evaluated(settings: Settings, tmp_path: Path) -> None:
    worker_port = free_port()
    env = fleet_env(settings) | {"NOVA_WORKER__METRICS_PORT": str(worker_port)}
    async with Fleet(env, log_dir=tmp_path / "logs") as fleet:
        loads = [fleet.client.runs.wait(StatelessRunCreate(message=message)) for message in _LOAD for _ in range(8)]
        assert {run.status for run in await asyncio.gather(*loads)} == {"succeeded", "failed"}
        targets = (fleet.api_url.removeprefix("http://"), f"127.0.0.1:{worker_port}")
        await _check(targets, tmp_path)


async def _check(targets: tuple[str, str], tmp_path: Path) -> None:
    config, port = tmp_path / "prometheus.yml", free_port()
    config.write_text(_CONFIG.format(rules=_FOLDER / "rules.yml", api=targets[0], worker=targets[1]))
    command = ["prometheus", f"--config.file={config}", f"--storage.tsdb.path={tmp_path}/data"]
    with (tmp_path / "log").open("wb") as log:
        process = await asyncio.create_subprocess_exec(
            *command, f"--web.listen-address=127.0.0.1:{port}", stdout=log, stderr=log
        )
    try:
        async with httpx2.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=30) as prometheus:

            async def answer(query: str) -> list[object]:
                answered = (await prometheus.get("/api/v1/query", params={"query": query})).json()
                assert answered["status"] == "success", f"{query}: {answered}"
                return answered["data"]["result"]

            async def is_ready() -> bool:
                try:
                    return (await prometheus.get("/-/ready")).status_code == 200
                except httpx2.TransportError:
                    return False

            async def is_scraped() -> bool:
                # A rate needs two samples.
                return len(await answer("sum_over_time(up[1m]) >= 3")) == 2

            await until(is_ready, timeout_s=60)
            await until(is_scraped, timeout_s=60)
            empty = {query for query in _queries() if not await answer(query.replace("$__rate_interval", "1m"))}
            assert {query for query in empty if any(name in query for name in _OF_LOAD)} == set()

            async def rules() -> list[dict[str, str]]:
                groups = (await prometheus.get("/api/v1/rules")).json()["data"]["groups"]
                return [rule for group in groups for rule in group["rules"]]

            async def are_evaluated() -> bool:
                return all(rule["health"] != "unknown" for rule in await rules())

            await until(are_evaluated, timeout_s=60)
            assert {rule["name"]: rule.get("lastError") for rule in await rules() if rule["health"] != "ok"} == {}
    finally:
        process.kill()
        await process.wait()
