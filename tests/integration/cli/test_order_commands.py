"""`nova orders`: an order from its file to its result, policies, and secrets that are printed once."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from redis.asyncio import Redis
from structlog.testing import capture_logs

from nova_workers.base.config import Settings
from nova_workers.base.stopping import stop_tasks
from nova_workers.contracts.orders import AiWorkOrderV1, derive_key_hash
from nova_workers.contracts.runs import Doorbell
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import served
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.support.data.documents import ROOT
from tests.support.harness.orders import AnsweringEngine, policy, with_master_key
from tests.support.harness.workers import Harness
from tests.support.processes.command_line import Done, Nova

_QUEUED = "SELECT id, thread_id, queue FROM runs WHERE status = 'queued'"


class Line:
    """The command with an API, and a worker that executes what is queued, on the test's own loop."""

    def __init__(self, nova: Nova, engine: AnsweringEngine, tenant: Tenant, directory: Path) -> None:
        self._nova = nova
        self.env = nova.env
        self.engine = engine
        self.tenant = tenant
        self.directory = directory

    async def __call__(self, *words: str, **env: str) -> Done:
        done = await asyncio.to_thread(self._nova, "orders", *words, **env)
        assert done.code == 0, done.err
        return done

    async def failing(self, *words: str, **env: str) -> Done:
        done = await asyncio.to_thread(self._nova, "orders", *words, **env)
        assert done.code == 1, done.out
        return done

    def file(self, name: str, value: Any) -> str:
        """Write a YAML file and return its path."""
        path = self.directory / name
        path.write_text(yaml.safe_dump(value), "utf-8")
        return str(path)

    def order(self, **changes: Any) -> str:
        """Write an order without its key, and return the path."""
        order = {
            "version": "v1",
            "tenant": self.tenant.id,
            "scope": "tests",
            "policyId": "test_policy",
            "inputs": {"headline": "An old one"},
            "constraints": {"timeoutMs": 20_000},
            "idempotency": {"ttlHours": 1},
            "trace": {"jobId": "job-1"},
            "audit": {"customerTrailOn": True, "internalTrailOn": True},
            **changes,
        }
        return self.file("order.yaml", order)


@pytest.fixture
async def line(database: Database, redis: Redis, settings: Settings, tmp_path: Path) -> AsyncIterator[Line]:
    tenant = await make_tenant(database)
    settings = with_master_key(settings)
    harness, engine = Harness(database, redis, settings), AnsweringEngine({})
    # The built-in policies call models of this engine.
    harness.engines["scripted"] = harness.engines["anthropic"] = engine
    worker = harness.worker()

    async def work() -> None:
        while True:
            for row in await database.fetch(_QUEUED):
                await worker.executor.answer(Doorbell(row["id"], row["thread_id"], row["queue"]))
            await asyncio.sleep(0.01)  # until something is queued

    working = asyncio.create_task(work())
    # The API logs into the same streams.
    with capture_logs():
        async with served(settings) as (url, _):
            env = {"NOVA_HOME": str(tmp_path), "NOVA_API_URL": url, "NOVA_API_KEY": tenant.key, "NO_COLOR": "1"}
            yield Line(Nova(env), engine, tenant, tmp_path)
    await stop_tasks([working])
    await harness.close()


@pytest.fixture
async def secret(line: Line) -> str:
    return (await line("secrets", "create", "--json")).json["secret"]


async def _store(line: Line, **fields: Any) -> None:
    await line("policies", "set", line.file("policy.yaml", policy(**fields).to_wire()))


async def test_an_order_is_submitted_from_its_file_and_gets_its_result(line: Line, secret: str) -> None:
    await _store(line)
    done = await line("submit", line.order(), IDEMPOTENCY_SECRET=secret)
    assert "succeeded: ok" in done.out
    assert "A better headline" in done.out
    again = (await line("submit", line.order(), "--json", IDEMPOTENCY_SECRET=secret)).json
    assert again["extensions"]["meta"]["cached"]
    assert len(line.engine.calls) == 1
    trace = again["traceId"]
    assert (await line("show", trace, "--json")).json["artifacts"] == again["artifacts"]
    internal = (await line("show", trace, "--internal", "--json")).json
    assert internal["extensions"]["costBreakdown"]["total"] == pytest.approx(0.01)
    assert trace in (await line("list", "--state", "ended")).out
    assert "No orders." in (await line("list", "--policy", "other")).err
    assert "accepted" in (await line("trail", trace)).out
    assert "test_policy" in (await line("trail", trace, "--internal")).out
    assert "run_" in (await line("parts", trace)).out


async def test_the_examples_of_the_documents_get_results(line: Line, secret: str, tmp_path: Path) -> None:
    page = ROOT / "docs" / "work-orders.md"
    found = {language: _block(page, language) for language in ("yaml", "python", "sh")}
    order = {**yaml.safe_load(found["yaml"]), "tenant": line.tenant.id}
    by_command = await line("submit", line.file("order.yaml", order), "--json", IDEMPOTENCY_SECRET=secret)
    assert by_command.json["stopReason"] == "ok"
    # The same order over HTTP, with the key that the command derived.
    keyed = AiWorkOrderV1.from_wire({**order, "idempotency": {"keyHash": "to-be-derived"}})
    keyed_wire = {**order, "idempotency": {"keyHash": derive_key_hash(keyed, secret)}}
    (tmp_path / "order.json").write_text(json.dumps(keyed_wire), "utf-8")
    curl = await asyncio.to_thread(
        subprocess.run, ["bash", "-c", found["sh"]], cwd=tmp_path, env={**os.environ, **line.env}, capture_output=True
    )
    assert json.loads(curl.stdout)["traceId"] == by_command.json["traceId"], curl.stderr
    snippet: dict[str, Any] = {"__name__": "snippet"}
    exec(found["python"], snippet)
    result = await snippet["propose"](line.env["NOVA_API_URL"], line.env["NOVA_API_KEY"], secret, line.tenant.id)
    assert (result.status, result.stop_reason) == ("succeeded", "ok")
    assert len(line.engine.calls) == 2


def _block(page: Path, language: str) -> str:
    """Return the first block of a language that submits an order."""
    texts = re.findall(rf"^```{language}\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return next(text for text in texts if re.search(r"^version: v1|build_order|curl .*work-orders", text, re.MULTILINE))


async def test_an_order_in_review_is_decided(line: Line, secret: str) -> None:
    await _store(line, escalation={"belowConfidence": 0.95})
    waiting = (await line("submit", line.order(), "--json", IDEMPOTENCY_SECRET=secret)).json
    assert (waiting["status"], waiting["needsHuman"]) == ("in_progress", True)
    assert waiting["traceId"] in (await line("list", "--state", "review")).out
    payload = {**waiting["artifacts"][0]["payload"], "value": "The best headline"}
    edited = await line("review", waiting["traceId"], "edit", "--payload", line.file("payload.yaml", payload))
    assert "The best headline" in edited.out
    late = await line.failing("review", waiting["traceId"], "reject")
    assert "traceback" not in late.err.lower()


async def test_an_invalid_order_gets_its_result_and_the_command_fails(line: Line, secret: str) -> None:
    refused = await line.failing("submit", line.order(policyId="unknown"), IDEMPOTENCY_SECRET=secret)
    assert "failed: invalid_request" in refused.out
    assert "policyId: there is no such policy" in refused.err
    unkeyed = await line.failing("submit", line.order())
    assert "idempotency.keyHash" in unkeyed.err
    wrong = await line.failing("submit", line.order(priority=1), IDEMPOTENCY_SECRET=secret)
    assert "priority: there is no such field" in wrong.err


async def test_policies_are_listed_shown_checked_and_stored(line: Line) -> None:
    assert "launchbase_standard" in (await line("policies", "list")).out
    shown = (await line("policies", "show", "butler_basic")).out
    file = line.file("own.yaml", {**yaml.safe_load(shown), "version": "2", "description": "Our own."})
    assert "butler_basic 2: 2 roles" in (await line("policies", "check", file)).out
    await line("policies", "set", file)
    listed = (await line("policies", "list", "--json")).json["items"]
    assert [each["version"] for each in listed if each["id"] == "butler_basic"] == ["2"]
    assert "Our own." in (await line("policies", "versions", "butler_basic")).out
    await line("policies", "delete", "butler_basic")
    assert "Our own." not in (await line("policies", "show", "butler_basic")).out
    broken = line.file("broken.yaml", {**yaml.safe_load(shown), "roles": []})
    assert "roles" in (await line.failing("policies", "check", broken)).err


async def test_a_secret_is_printed_once_and_removed(line: Line, secret: str) -> None:
    listed = await line("secrets", "list", "--json")
    assert secret not in json.dumps(listed.json)
    await line("secrets", "delete", listed.json["items"][0]["id"])
    assert "No secrets" in (await line("secrets", "list")).err
