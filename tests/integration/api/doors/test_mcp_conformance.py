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
    list_scenarios,
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

NOT_OURS: Final[dict[str, str]] = {
    **dict.fromkeys(
        (
            "tools-call-image",
            "tools-call-audio",
            "tools-call-embedded-resource",
            "tools-call-mixed-content",
            "resources-read-text",
            "resources-read-binary",
            "resources-templates-read",
            "prompts-get-simple",
            "prompts-get-with-args",
            "prompts-get-embedded-resource",
            "prompts-get-with-image",
            "json-schema-2020-12",
            "http-custom-header-server-validation",
            "tools-call-with-progress",
        ),
        "it wants a tool, prompt or resource with its own content, schema, headers or steps, which no agent has",
    ),
    **dict.fromkeys(
        (
            "logging-set-level",
            "tools-call-with-logging",
            "completion-complete",
            "tools-call-sampling",
            "input-required-result-basic-sampling",
            "input-required-result-basic-list-roots",
            "input-required-result-multiple-input-requests",
            "input-required-result-capability-check",
            "input-required-result-non-tool-request",
            "resources-subscribe",
            "resources-unsubscribe",
        ),
        "the server writes clients no logs, completes nothing, asks for no model and no roots, and announces no change",
    ),
    **dict.fromkeys(
        ("tools-call-elicitation", "elicitation-sep1034-defaults", "elicitation-sep1330-enums"),
        "a server without sessions cannot ask clients of a version with handshake: they get questions in words",
    ),
    **dict.fromkeys(
        ("server-sse-polling",),
        "streams of the versions with handshake are not resumed: get_run has what became of a run",
    ),
    **dict.fromkeys(
        ("input-required-result-basic-elicitation", "input-required-result-ignore-extra-params"),
        "it wants its own key for a question; ours are the ids of waits",
    ),
    "tasks-required-task-error": "no tool of the door needs a client with tasks",
    "tasks-mrtr-composition": "a run asks as a task, never before there is one",
    "tasks-status-notifications": "the suite skips it",
    "server-session-lifecycle": "the suite skips it for servers without sessions",
    **dict.fromkeys(
        ("sep-2640-skills-directory", "sep-2640-skills-enumeration", "sep-2640-skills-manifest"),
        "an extension that the door does not declare: it offers skills as prompts",
    ),
}
"""Scenarios of the suite that are not run, with the reason."""

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
    "input-required-result-request-state",
    "input-required-result-multi-round",
    "input-required-result-missing-input-response",
    "input-required-result-result-type",
    "input-required-result-unsupported-methods",
    "input-required-result-tampered-state",
    "input-required-result-validate-input",
    "server-sse-multiple-streams",
    "tasks-lifecycle",
    "tasks-capability-negotiation",
    "tasks-wire-fields",
    "tasks-request-state-removal",
    "tasks-mrtr-input",
    "tasks-request-headers",
    "tasks-dispatch-and-envelope",
)
_OLDER = ("server-initialize", "ping", "tools-list", "resources-list", "prompts-list", "dns-rebinding-protection")
_WITHOUT_OAUTH: Final = "auth/"
"""Scenarios of clients that sign in: workers have tokens from secrets, and no user to sign in."""
_CLIENTS: Final = (
    "initialize",
    "tools_call",
    "request-metadata",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "sse-retry",
)
_NOT_OF_CLIENTS: Final[dict[str, str]] = {
    **dict.fromkeys(
        ("sep-2322-client-request-state", "elicitation-sep1034-client-defaults"),
        "its server asks the client's user: a worker has none, and declares so",
    ),
    **dict.fromkeys(
        (
            "sep-2640-client-no-prefetch",
            "sep-2640-client-verify-digest",
            "sep-2640-client-verify-frontmatter",
            "sep-2640-client-verify-size",
        ),
        "an extension that workers do not declare: skills of agents are the fleet's own",
    ),
    "json-schema-2020-12-preservation": (
        "it wants a tool's schema back as it was declared: models get it in the form that their provider takes"
    ),
}
"""Scenarios of clients that are not run, with the reason."""


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
    async with httpx2.AsyncClient(base_url=url, timeout=60) as http:
        playing = asyncio.create_task(play_fixtures(http, worker))
        try:
            checks = await run_scenario(_SUITE, url, scenario, version, tmp_path)
        finally:
            await stop_tasks((playing,))
    failed = {name for name, status in checks.items() if status == "FAILURE"}
    assert failed == EXPECTED_FAILURES.get((version, scenario), frozenset())
    assert any(status == "SUCCESS" for status in checks.values()), checks


async def test_every_scenario_of_the_suite_is_run_or_has_a_reason() -> None:
    assert _SUITE is not None
    assert await list_scenarios(_SUITE, "server") == {*_MODERN, *_OLDER, *NOT_OURS}
    clients = {each for each in await list_scenarios(_SUITE, "client") if not each.startswith(_WITHOUT_OAUTH)}
    assert clients == {*_CLIENTS, *_NOT_OF_CLIENTS}


@pytest.mark.parametrize("scenario", _CLIENTS)
async def test_the_client_of_workers_passes_a_scenario(tmp_path: Path, scenario: str) -> None:
    assert _SUITE is not None
    checks = await run_client_scenario(_SUITE, scenario, tmp_path)
    assert "FAILURE" not in checks.values(), checks
    assert "SUCCESS" in checks.values(), checks
