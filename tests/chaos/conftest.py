from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from nova_workers.base.config import Settings
from tests.support.processes.fleet import fleet_env
from tests.support.processes.own_servers import OwnServers

SHORT_LEASES = {
    "NOVA_RUNS__LEASE_TTL_S": "4",
    "NOVA_RUNS__LEASE_RENEW_S": "1",
    "NOVA_RUNS__RERING_AFTER_S": "2",
    "NOVA_RUNS__RECONCILE_EVERY_S": "1",
    "NOVA_WORKER__DRAIN_GRACE_S": "3",
    "NOVA_WORKER__DRAIN_DEADLINE_S": "20",
    "NOVA_EFFECTS__ENABLED": "false",
}
"""A lost worker is noticed in seconds, so that tests need not wait for half a minute."""


def long_run(seconds: float) -> str:
    """Return a message whose turn commits a step with a tool, works for a while, and answers."""
    return json.dumps(
        {
            "script": [
                {"say": "One. ", "tool": {"name": "first", "result": "done"}},
                {"sleep_s": seconds},
                {"say": "Two. ", "tool": {"name": "second", "result": "done"}},
                {"say": "The end."},
            ]
        }
    )


@pytest.fixture
async def own_servers() -> AsyncIterator[OwnServers]:
    """Servers for this test alone."""
    home = Path(tempfile.mkdtemp(prefix="nova-chaos-"))
    servers = OwnServers(home)
    servers.env |= SHORT_LEASES
    try:
        await servers.start()
        yield servers
    finally:
        await servers.stop()
        shutil.rmtree(home, ignore_errors=True)


@pytest.fixture
def env(settings: Settings) -> dict[str, str]:
    """Variables of a fleet on the session's servers, with short leases."""
    return {**fleet_env(settings), **SHORT_LEASES}
