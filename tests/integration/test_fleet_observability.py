"""Observability of a real fleet: one trace per run, metrics of every process, Flower with ids, effects done."""

import asyncio
import json
import signal
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import psutil
import pytest
from celery.worker.control import Panel

from nova_workers.base.config import Settings
from nova_workers.broker.celery_app import build_celery
from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.devstack.commands import flower_command, worker_command
from nova_workers.ledger.database import Database
from nova_workers.worker.remote_control import PERMITTED
from tests.requirements import proves
from tests.support.processes.fleet import Fleet, FleetProcess, fleet_env, free_port
from tests.support.servers.trace_collector import TraceCollector, trace_collector

pytestmark = pytest.mark.fleet

SCRIPT = json.dumps({"script": [{"tool": {"name": "memory_list", "input": {}}}, {"say": "Nothing is remembered."}]})


@pytest.fixture
def collector() -> Iterator[TraceCollector]:
    with trace_collector() as collector:
        yield collector


async def _until(done: Callable[[], Any], what: str, timeout_s: float = 60.0) -> Any:
    """Wait until `done` gives something true, and return it."""
    async with asyncio.timeout(timeout_s):
        while True:
            value = done()
            if asyncio.iscoroutine(value):
                value = await value
            if value:
                return value
            await asyncio.sleep(0.05)
    raise AssertionError(what)


_FLOWER_PASSWORD = "of-flower-and-long"


@asynccontextmanager
async def _flower(env: dict[str, str], log: Path) -> AsyncGenerator[httpx2.AsyncClient]:
    port = free_port()
    command = flower_command(host="127.0.0.1", port=port)
    process = FleetProcess("flower", command, {**env, "NOVA_FLOWER__PASSWORD": _FLOWER_PASSWORD}, log)
    try:
        auth = ("nova", _FLOWER_PASSWORD)
        async with httpx2.AsyncClient(
            base_url=f"http://127.0.0.1:{port}", auth=auth, trust_env=False, timeout=30
        ) as client:

            async def hears_the_worker() -> bool:
                assert process.exit_code is None, process.tail()
                try:
                    return bool((await client.get("/workers", params={"json": 1})).json()["data"])
                except httpx2.TransportError:
                    return False

            # It answers before it listens; what happens until then it never hears of.
            await _until(hears_the_worker, "Flower to hear the worker's heartbeat", 60)
            yield client
    finally:
        process.kill()


@proves("celery.nodes", "celery.commands", "security.hosts", "drain.order")
async def test_a_run_is_in_traces_metrics_flower_and_logs(
    settings: Settings, database: Database, collector: TraceCollector, tmp_path: Path
) -> None:
    metrics_port = free_port()
    env = fleet_env(settings) | {
        "NOVA_TELEMETRY__OTLP_ENDPOINT": collector.url,
        "NOVA_WORKER__METRICS_PORT": str(metrics_port),
        "OTEL_BSP_SCHEDULE_DELAY": "100",
    }
    async with (
        Fleet(env, log_dir=tmp_path / "logs", embeddings=True) as fleet,
        _flower(fleet.env, tmp_path / "flower.log") as flower,
    ):
        await _check_loaded_engine(fleet)
        first = await fleet.client.runs.wait(StatelessRunCreate(message=SCRIPT))
        second = await fleet.client.runs.wait(StatelessRunCreate(message="Name this", thread_id=first.thread_id))
        assert (first.status, second.status) == ("succeeded", "succeeded")
        await _check_effects(fleet, database, second.thread_id)
        await _check_trace(collector, first.id, database)
        await _check_metrics(fleet, metrics_port)
        await _check_flower(flower, first.id, first.thread_id)
        await _check_remote_control(fleet, flower)
        await _check_logs(fleet, first.id)


async def _check_loaded_engine(fleet: Fleet) -> None:
    """Check that a worker loads the engine of its agents before there is any message."""
    (line,) = await _until(lambda: _lines(fleet.workers[0], "worker.warm"), "the worker to load its engine")
    assert line["engines"] == ["scripted"]


async def _check_effects(fleet: Fleet, database: Database, thread_id: str) -> None:
    async def done() -> bool:
        open_effects = await database.fetchval("SELECT count(*) FROM effects WHERE status <> 'done'")
        return open_effects == 0 and await database.fetchval("SELECT count(*) FROM effects") == 3

    try:
        await _until(done, "effects to be done")
    except TimeoutError:
        rows = [dict(row) for row in await database.fetch("SELECT kind, status, attempts, error FROM effects")]
        raise AssertionError(f"effects are not done: {rows}\n{fleet.tails()}") from None
    assert await database.fetchval("SELECT count(*) FROM embeddings WHERE dimensions = 384") == 4
    thread = await fleet.client.threads.get(thread_id)
    assert thread.title


async def _check_trace(collector: TraceCollector, run_id: str, database: Database) -> None:
    traceparent = await database.fetchval("SELECT traceparent FROM runs WHERE id = :run_id", run_id=run_id)
    trace_id = traceparent.split("-")[1]
    expected = {
        ("POST /v1/runs/wait", "api"),
        ("nova.queue_wait", "worker"),
        ("invoke_agent Nova", "worker"),
        ("nova.step", "worker"),
        ("chat scripted", "worker"),
        ("execute_tool memory_list", "worker"),
        ("effect.embeddings", "worker"),
    }

    def seen() -> set[tuple[str, str]]:
        return {(span.name, str(span.process)) for span in collector.of(trace_id)}

    try:
        await _until(lambda: expected <= seen(), "the trace")
    except TimeoutError:
        raise AssertionError(f"the trace has only {sorted(seen())}") from None
    assert not any(name.startswith("tools/call") for name, _ in seen())
    assert len(collector.of(trace_id, "nova.step")) == len(collector.of(trace_id, "chat scripted")) == 2
    roots = {span.name for span in collector.of(trace_id) if not span.parent_id}
    assert roots == {"POST /v1/runs/wait"}


async def _check_metrics(fleet: Fleet, metrics_port: int) -> None:
    async with httpx2.AsyncClient(trust_env=False, timeout=60) as client:
        worker = (await client.get(f"http://127.0.0.1:{metrics_port}/metrics")).text
        api = (await client.get(f"{fleet.api_url}/metrics")).text
    assert 'nova_runs_finished_total{queue="interactive",status="succeeded"} 2.0' in worker
    assert 'nova_runs_claimed_total{kind="first",queue="interactive"} 2.0' in worker
    assert 'nova_run_claim_latency_seconds_count{queue="interactive"} 2.0' in worker
    assert 'nova_tool_calls_total{status="completed"} 1.0' in worker
    assert 'nova_effects_total{kind="embeddings",outcome="done"} 2.0' in worker
    assert 'nova_runs_open{status="queued"} 0.0' in api
    assert 'nova_runs_accepted_total{queue="interactive",source="api"} 2.0' in api
    assert 'route="/v1/runs/wait",status="200"' in api


async def _check_flower(flower: httpx2.AsyncClient, run_id: str, thread_id: str) -> None:
    async def task() -> dict[str, Any] | None:
        tasks: dict[str, dict[str, Any]] = (await flower.get("/api/tasks")).json()
        found = [task for task in tasks.values() if run_id in str(task["kwargs"])]
        return found[0] if found and found[0]["state"] == "SUCCESS" else None

    shown = await _until(task, "Flower to show the task")
    assert shown["name"] == "nova.run_agent"
    assert thread_id in shown["kwargs"]
    query = {"draw": 1, "start": 0, "length": 50, "order[0][column]": 0, "columns[0][data]": "name"}
    table = (await flower.get("/tasks/datatable", params=query)).json()
    assert f"{run_id} · {thread_id}" in {row["kwargs"] for row in table["data"]}
    assert (await flower.post("/api/worker/shutdown/any")).status_code == 403
    await _check_flower_wall(flower)


async def _check_flower_wall(flower: httpx2.AsyncClient) -> None:
    assert (await flower.get("/metrics")).status_code == 200
    assert (await flower.get("/metrics", headers={"host": "rebound.example"})).status_code == 421
    async with httpx2.AsyncClient(base_url=flower.base_url, trust_env=False, timeout=60) as stranger:
        for path in ("/metrics", "/", "/api/workers", "/nothing"):
            refused = await stranger.get(path)
            assert (refused.status_code, refused.headers["www-authenticate"]) == (401, 'Basic realm="flower"')
        assert (await stranger.get("/metrics", auth=("nova", "wrong"))).status_code == 401
        assert (await stranger.get("/healthcheck")).status_code == 200
        assert (await stranger.get("/healthcheck", headers={"host": "rebound.example"})).status_code == 421


async def _check_remote_control(fleet: Fleet, flower: httpx2.AsyncClient) -> None:
    """Check inspections of two workers that were given one name, and that other commands are refused in words."""
    command = worker_command(concurrency=1, queues=("system",), name="worker-0")
    env = {**fleet.env, "NOVA_WORKER__METRICS_PORT": "0"}
    worker = FleetProcess("twin", command, env, fleet.workers[0].log.with_name("twin.log"))
    try:
        twin = await fleet.worker_ready(worker)
        nodes = {twin.node or "", *[(await fleet.worker_ready(each)).node or "" for each in fleet.workers]}
        assert len({node for node in nodes if node.startswith("worker-0-")}) == 2
        await asyncio.to_thread(_command_workers, fleet.env["NOVA_REDIS_URL"], nodes)
        await _check_pages(flower, nodes)
        await _check_drain(fleet, worker, twin.id)
    finally:
        worker.kill()


async def _check_drain(fleet: Fleet, worker: FleetProcess, worker_id: str) -> None:
    """Check that a worker that is ordered to drain ends as on SIGTERM, and the others stay."""
    order = await fleet.client.fleet.drain_worker(worker_id)
    assert await worker.ended() == 0, worker.tail()
    view = await fleet.client.fleet.view()
    assert worker_id not in {each.id for each in view.workers or ()}
    assert [(each.worker_id, each.ordered_at) for each in view.drained] == [(worker_id, order.ordered_at)]
    assert view.drained[0].ended_at is not None
    assert fleet.workers[0].exit_code is None


def _command_workers(redis_url: str, nodes: set[str]) -> None:
    with build_celery(redis_url, fail_fast=True) as celery:

        def replies(command: str, **arguments: object) -> dict[str, Any]:
            found = celery.control.broadcast(command, arguments, reply=True, timeout=10, limit=len(nodes))
            return {node: answer for reply in found or () for node, answer in reply.items()}

        # A worker is in the fleet's view before its mailbox listens, and a command that is sent before is lost.
        ends_s = time.monotonic() + 60
        while len(celery.control.broadcast("ping", reply=True, timeout=1, limit=len(nodes)) or ()) < len(nodes):
            assert time.monotonic() < ends_s, "a mailbox does not listen"
        needed = {"query_task": {"ids": ["some"]}, "conf": {"with_defaults": True}}
        for command in sorted(PERMITTED):
            found = replies(command, **needed.get(command, {}))
            assert found.keys() == nodes, command
            assert not [answer for answer in found.values() if isinstance(answer, dict) and "error" in answer], found
        for command in sorted(Panel.data.keys() - PERMITTED):
            found = replies(command)
            assert found.keys() == nodes, command
            assert all(answer["error"].startswith("refused: ") for answer in found.values()), found
        assert "send SIGTERM" in str(replies("shutdown"))
        assert replies("ping") == {node: {"ok": "pong"} for node in nodes}


async def _check_pages(flower: httpx2.AsyncClient, nodes: set[str]) -> None:
    async def shown() -> bool:
        return nodes <= {row["hostname"] for row in (await flower.get("/workers?json=1")).json()["data"]}

    await _until(shown, "Flower to show every worker")
    pages = ["/", "/workers", "/tasks", "/broker", "/metrics", "/healthcheck", "/api/workers?refresh=1", "/api/tasks"]
    pages += ["/api/task/types", "/api/queues/length", *(f"/worker/{node}" for node in nodes)]
    for page in pages:
        answer = await flower.get(page)
        assert answer.status_code == 200, (page, answer.text)
    for action in ("worker/pool/grow/any", "task/revoke/any", "task/async-apply/nova.run_agent"):
        answer = await flower.post(f"/api/{action}")
        assert answer.status_code == 403, action


async def _check_logs(fleet: Fleet, run_id: str) -> None:
    def of_run() -> list[dict[str, Any]]:
        return [line for line in _lines(fleet.workers[0], "run.finished") if line.get("run_id") == run_id]

    finished = await _until(of_run, "the line of the run to be written")
    assert len(finished) == 1
    assert {"thread_id", "tenant_id", "attempt", "fence", "trace_id", "process"} <= set(finished[0])
    assert fleet.api_key not in "".join(process.log.read_text() for process in fleet.processes)


def _lines(process: FleetProcess, event: str) -> list[dict[str, Any]]:
    lines = [json.loads(line) for line in process.log.read_text().splitlines() if line.startswith("{")]
    return [line for line in lines if line["event"] == event]


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
async def test_a_signal_that_ends_a_process_loses_no_line(
    settings: Settings, tmp_path: Path, number: signal.Signals
) -> None:
    async with Fleet(fleet_env(settings), log_dir=tmp_path / "logs") as fleet:
        runs = await asyncio.gather(*(fleet.client.runs.wait(StatelessRunCreate(message="Hello")) for _ in range(20)))
        worker, api = fleet.workers[0], fleet.api
        assert api is not None
        for process in (worker, api):
            process.send_signal(number)
        for process in (worker, api):
            await process.ended()
        finished = [line["run_id"] for line in _lines(worker, "run.finished")]
        assert sorted(finished) == sorted(run.id for run in runs)
        waited = [line for line in _lines(api, "http.request") if line["route"] == "/v1/runs/wait"]
        assert len(waited) == len(runs)
        # The last line of each, which is followed by the end at once.
        assert len(_lines(worker, "worker.stopped")) == 1
        assert len(_lines(api, f"Finished server process [{api.pid}]")) == 1


async def test_a_draining_worker_releases_its_effects_and_ends_its_child(
    settings: Settings, database: Database, tmp_path: Path
) -> None:
    env = fleet_env(settings) | {"NOVA_EFFECTS__EMBEDDING_BATCH": "256"}
    async with Fleet(env, log_dir=tmp_path / "logs", embeddings=True) as fleet:
        worker = fleet.workers[0]
        long_text = "the fleet runs agents " * 2_000
        runs = [fleet.client.runs.wait(StatelessRunCreate(message=long_text)) for _ in range(12)]
        assert {run.status for run in await asyncio.gather(*runs)} == {"succeeded"}

        async def embedding() -> bool:
            return await database.fetchval("SELECT count(*) FROM effects WHERE status = 'running'") > 0

        await _until(embedding, "effects to be claimed")
        children = psutil.Process(worker.pid).children()
        worker.terminate()
        assert await worker.ended(timeout_s=20) == 0, worker.tail()
        assert await database.fetchval("SELECT count(*) FROM effects WHERE status = 'running'") == 0
        assert await database.fetchval("SELECT max(attempts) FROM effects WHERE status = 'pending'") == 0
        await _until(lambda: not any(child.is_running() for child in children), "the child to be gone", 10)
        assert "Traceback" not in worker.log.read_text()
