"""Effects of packages: installed beside a worker, called in a process of theirs, with the rows of the fleet's own."""

from __future__ import annotations

import re
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from redis.asyncio import Redis

from nova_workers.base import user_code
from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.observability.metrics import Metrics
from nova_workers.base.observability.tracing import Tracing
from nova_workers.bootstrap.effects import package_effects
from nova_workers.contracts.runs import PlannedEffect
from nova_workers.domain.effects.rules.handler import Effect
from nova_workers.domain.effects.rules.runner import EffectRunner
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.engines.mcp.pool import ConnectionPool
from nova_workers.engines.mcp.tool_programs import McpToolPrograms
from nova_workers.ledger.database import Database
from tests.integration.effects.ledger import effect, make_due, seed_run
from tests.requirements import proves
from tests.support.data.example_package import PACKAGE, load
from tests.support.harness.orders import with_master_key
from tests.support.harness.workers import Harness
from tests.support.processes.installed_packages import install

_LOG_RUN = "desk:log_run"
_SECRETS = ["DESK_URL", "DESK_TOKEN"]

_BROKEN = {
    "no_argument": (
        "from nova_workers.sdk import effect\n\n\n@effect\ndef log():\n    'Log.'\n",
        r"broken\.py:4: the effect 'log': its parameters are \(\); expected \(run: EndedRun\)",
    ),
    "no_module": ("import acme_nothing\n", r"broken\.py:1: the module 'acme_desk\.broken' cannot be imported"),
    "ends": ("import sys\nsys.exit(3)\n", r"broken\.py:2: the module 'acme_desk\.broken' ends the process"),
    "other": ("from nova_workers.sdk import tool\n", r"has no effect 'log'; it has: none"),
}


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of an environment in which the example is installed."""
    into = tmp_path_factory.mktemp("operator")
    packages = install(PACKAGE, into)
    broken = packages / "broken-1.0.dist-info"
    broken.mkdir()
    (broken / "METADATA").write_text("Metadata-Version: 2.1\nName: broken\nVersion: 1.0\n")
    (broken / "entry_points.txt").write_text("[nova_workers.effects]\nbroken = acme_desk.broken\n")
    return into


@pytest.fixture
def installed(environment: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let this process be one of that environment; return its directory of packages."""
    (packages,) = environment.glob("lib/*/site-packages")
    monkeypatch.syspath_prepend(packages)
    monkeypatch.setattr(user_code, "PYTHON", str(environment / "bin" / "python"))
    return packages


@pytest.fixture
def desk() -> Iterator[Any]:
    with load(PACKAGE / "tests" / "desk.py").Desk() as desk:
        yield desk


@pytest.fixture
async def programs() -> AsyncIterator[McpToolPrograms]:
    programs = McpToolPrograms(ConnectionPool(start_timeout_s=60))
    yield programs
    await programs.close()


MakeEffects = Callable[..., tuple[Effect, ...]]


@pytest.fixture
def make_effects(
    installed: Path, database: Database, settings: Settings, metrics: Metrics, programs: McpToolPrograms
) -> MakeEffects:
    """Return a function that makes the effects that a worker with these settings has."""
    del installed

    async def get() -> McpToolPrograms:
        return programs

    def make(name: str = _LOG_RUN, **chosen: object) -> tuple[Effect, ...]:
        effects = settings.effects.model_validate({"packages": {name: {"secrets": _SECRETS, **chosen}}})
        given = with_master_key(settings).model_copy(update={"effects": effects})
        return tuple(package_effects(database, given, metrics, get))

    return make


def _runner(database: Database, settings: Settings, metrics: Metrics, effects: tuple[Effect, ...]) -> EffectRunner:
    return EffectRunner(
        database,
        settings.effects,
        leases=settings.runs,
        effects=effects,
        clock=SystemClock(),
        metrics=metrics,
        tracing=Tracing(settings.telemetry, "worker"),
    )


@proves("effects.packages")
async def test_an_effect_of_a_package_is_called_until_it_succeeds_with_one_key_and_shows_its_failures(
    make_effects: MakeEffects, database: Database, settings: Settings, metrics: Metrics, desk: Any
) -> None:
    runner = _runner(database, settings, metrics, make_effects())
    run = await seed_run(database, effects=[_LOG_RUN])
    await database.execute(
        "UPDATE runs SET result_text = :text, source = 'api', stop_reason = 'end_turn' WHERE id = :run_id",
        text="The key is token-41c9d2, and more. " + "x" * 20_000,
        run_id=run.run_id,
    )

    # The tenant lacks the secrets.
    assert await runner.run_due() == 1
    row = await effect(database, run.run_id, _LOG_RUN)
    assert (row["status"], row["attempts"]) == ("pending", 1)
    assert str(row["error"]).startswith("NotFound: There is no secret 'DESK_TOKEN', 'DESK_URL'.")
    secrets = Secrets(database, Vault.of(with_master_key(settings).secrets.source))
    for name, value in desk.secrets.items():
        await secrets.put(run.tenant_id, name, value, by="key_1")

    # The desk is away.
    await make_due(database)
    with desk.broken():
        assert await runner.run_due() == 1
    row = await effect(database, run.run_id, _LOG_RUN)
    assert (row["status"], row["attempts"]) == ("pending", 2)
    assert 0 < float(str(row["due_in_s"])) <= 10
    failure = r"ToolFailure: log_run failed: HTTPError: HTTP Error 503: .* \(at .*/acme_desk/effects\.py:\d+\)"
    assert re.match(failure, str(row["error"])), row["error"]
    count = metrics.registry.get_sample_value
    assert count("nova_effects_total", {"kind": _LOG_RUN, "outcome": "retried"}) == 2
    assert count("nova_effects_total", {"kind": _LOG_RUN, "outcome": "failed"}) == 0

    await make_due(database)
    assert await runner.run_due() == 1
    row = await effect(database, run.run_id, _LOG_RUN)
    assert (row["status"], row["error"]) == ("done", None)
    # Under the key of the effect, without the secret, and within bounds.
    ((place, record),) = desk.records.items()
    assert place == f"/records/{row['id']}"
    assert (record["run"], record["agent"], record["status"]) == (run.run_id, "nova", "succeeded")
    assert record["text"].startswith("The key is [secret:DESK_TOKEN], and more. xxx")
    assert len(record["text"]) < 16_100


@proves("effects.packages")
async def test_effects_of_packages_follow_the_runs_of_their_agents_beside_each_other_and_after_the_fleets_own(
    database: Database, redis: Redis, settings: Settings
) -> None:
    harness = Harness(database, redis, settings)
    await harness.open()
    harness.effects = (
        PlannedEffect("embeddings", "searchable"),
        PlannedEffect("a:one", "ended", is_last=True),
        PlannedEffect("b:two", "ended", is_last=True, agents=frozenset({"scripted"}), tenants=frozenset({"ten_test"})),
        PlannedEffect("c:three", "ended", is_last=True, agents=frozenset({"planned"})),
        PlannedEffect("d:four", "ended", is_last=True, tenants=frozenset({"ten_other"})),
    )
    good = await harness.submit('{"script": [{"say": "Yes."}]}', await harness.thread("scripted"))
    bad = await harness.submit('{"script": [{"error": {"message": "No."}}]}', await harness.thread("scripted"))
    await harness.settle(harness.worker())
    await harness.close()

    rows = await database.fetch(
        "SELECT run_id, kind, position, due_at <= now() AS is_due FROM effects ORDER BY run_id, position, kind"
    )
    found = [(row["kind"], row["position"], row["is_due"]) for row in rows if row["run_id"] == good.run_id]
    assert found == [("embeddings", 1, True), ("a:one", 2, False), ("b:two", 2, False)]
    # Without an effect before them they are due at once.
    found = [(row["kind"], row["position"], row["is_due"]) for row in rows if row["run_id"] == bad.run_id]
    assert found == [("a:one", 2, True), ("b:two", 2, True)]


@pytest.mark.parametrize("what", [*_BROKEN, "unknown"])
def test_an_effect_that_cannot_be_used_stops_the_start_of_a_worker(
    what: str, make_effects: MakeEffects, installed: Path, request: pytest.FixtureRequest
) -> None:
    if what == "unknown":
        with pytest.raises(ConfigurationError, match=r"No package names 'crm'.*; there are: broken, desk\. Install"):
            make_effects("crm:log")
        return
    code, problem = _BROKEN[what]
    module = installed / "acme_desk" / "broken.py"
    request.addfinalizer(module.unlink)
    module.write_text(code)
    with pytest.raises(ConfigurationError, match=problem):
        make_effects("broken:log")


def test_two_packages_with_one_name_are_refused(make_effects: MakeEffects, tmp_path: Path) -> None:
    other = tmp_path / "other_desk-2.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other-desk\nVersion: 2.0\n")
    (other / "entry_points.txt").write_text("[nova_workers.effects]\ndesk = other_desk\n")
    sys.path.insert(0, str(tmp_path))
    try:
        with pytest.raises(ConfigurationError, match=r"of acme-desk 1\.0\.0 and 'other_desk' of other-desk 2\.0 have"):
            make_effects()
    finally:
        sys.path.remove(str(tmp_path))
