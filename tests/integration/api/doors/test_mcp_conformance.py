"""The protocol's own conformance suite, in both kinds of versions."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import httpx2
import pytest

from api.app import build_app
from nova_workers.base.http_server.connections import GuardedProtocol
from nova_workers.base.stopping import stop_tasks
from tests.integration.api.doors.mcp_conformance import (
    SuiteFixtures,
    find_suite,
    play_fixtures,
    run_client_scenario,
    run_scenario,
)
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.integration.api.shared_servers import SharedServers
from tests.support.servers.asgi import serving

_SUITE = find_suite()

pytestmark = [
    pytest.mark.long,
    pytest.mark.skipif(_SUITE is None, reason="npm install --global @modelcontextprotocol/conformance"),
]

EXPECTED_FAILURES: Final[dict[tuple[str, str], frozenset[str]]] = {
    # They need tools with which the server asks for sampling, writes logs or sends requests in a response. It does not.
    ("2026-07-28", "server-stateless"): frozenset(
        {
            "sep-2575-http-server-no-independent-requests-on-stream",
            "sep-2575-missing-capability-http-400",
            "sep-2575-server-no-log-without-loglevel",
            "sep-2575-server-rejects-undeclared-capability",
        }
    ),
    # No tool of the door greets.
    ("2026-07-28", "tasks-request-headers"): frozenset({"tasks-headers-tolerate-mcp-method-on-tools-call"}),
}
"""Checks that the door does not pass, by version and scenario, with the reason."""

_MODERN = (
    "server-stateless",
    "tools-list",
    "dns-rebinding-protection",
    "caching",
    "resources-list",
    "sep-2164-resource-not-found",
    "prompts-list",
    "http-header-validation",
    "tools-call-simple-text",
    "tools-call-error",
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
)
_OLDER = ("server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "dns-rebinding-protection")


@asynccontextmanager
async def _served(shared: SharedServers, tenant: Tenant) -> AsyncGenerator[str]:
    app = build_app(shared.settings.model_copy(update={"doors": ("mcp",)}))
    async with serving(SuiteFixtures(app, tenant.key), patient=True, http=GuardedProtocol) as url:
        yield url
        app.state.nova.watch.close()


@pytest.mark.parametrize(
    ("version", "scenario"),
    [*(("2026-07-28", each) for each in _MODERN), *(("2025-11-25", each) for each in _OLDER)],
)
async def test_a_scenario_of_the_suite_passes(
    shared: SharedServers, tenant: Tenant, worker: ManualWorker, tmp_path: Path, version: str, scenario: str
) -> None:
    assert _SUITE is not None
    url = shared.enter(_served(shared, tenant))
    async with httpx2.AsyncClient(base_url=url) as http:
        playing = asyncio.create_task(play_fixtures(http, worker))
        try:
            checks = await run_scenario(_SUITE, url, scenario, version, tmp_path)
        finally:
            await stop_tasks((playing,))
    failed = {name for name, status in checks.items() if status == "FAILURE"}
    assert failed == EXPECTED_FAILURES.get((version, scenario), frozenset())
    assert any(status == "SUCCESS" for status in checks.values()), checks


_UNANSWERED: Final = "sep-2322-client-request-state"
"""Its server asks the client's user before it answers. A worker has none, and declares so: the call fails."""


@pytest.mark.parametrize(
    "scenario",
    [
        "initialize",
        "tools_call",
        "request-metadata",
        "http-standard-headers",
        "http-custom-headers",
        "http-invalid-tool-headers",
        "json-schema-ref-no-deref",
        "sse-retry",
        pytest.param(_UNANSWERED, marks=pytest.mark.xfail(strict=True, reason="a worker answers no questions")),
    ],
)
async def test_the_client_of_workers_passes_a_scenario(tmp_path: Path, scenario: str) -> None:
    assert _SUITE is not None
    checks = await run_client_scenario(_SUITE, scenario, tmp_path)
    assert "FAILURE" not in checks.values(), checks
    assert "SUCCESS" in checks.values(), checks
