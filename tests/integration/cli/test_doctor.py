"""Each failure that `nova doctor` finds comes with a fix."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis as sync_redis
from redis.asyncio import Redis as AsyncRedis

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import Settings
from nova_workers.base.keys import BEAT_TTL_S, beat_tick, broker_queue, provider_reports, worker_presence, workers_index
from nova_workers.base.vocabulary import QUEUES
from nova_workers.cli.operations.api_checks import check_api, check_console
from nova_workers.cli.operations.author_checks import check_authors
from nova_workers.cli.operations.checks import check_broker
from nova_workers.cli.operations.findings import Finding
from nova_workers.cli.operations.orchestration_checks import check_orchestrations
from nova_workers.cli.operations.provider_checks import check_providers
from nova_workers.cli.target import Target
from nova_workers.client.client import NovaClient
from nova_workers.contracts.agents import CapabilityGrant
from nova_workers.contracts.http.fleet import SandboxTrial
from nova_workers.contracts.http.keys import KeyCreate
from nova_workers.contracts.http.leases import LeasePause, LeaseRequest
from nova_workers.contracts.http.orchestration_config import OrchestrationConfigPut
from nova_workers.contracts.http.orchestrations import OrchestrationCreate
from nova_workers.contracts.http.scopes import whole_scopes
from nova_workers.contracts.http.triggers import TriggerCreate
from nova_workers.contracts.http.wire import AgentCreate
from nova_workers.domain.orchestrations.rules.models.availability import ProviderReport
from nova_workers.ledger.database import PostgresDatabase
from nova_workers.worker.presence import Presence
from tests.integration.cli.conftest import logical_database
from tests.requirements import proves
from tests.support.processes.command_line import Done, Nova
from tests.support.processes.fleet import Fleet, free_port

pytestmark = pytest.mark.fleet


def _finding(done: Done, name: str) -> Any:
    found = [finding for finding in done.json["findings"] if finding["name"] == name]
    assert len(found) == 1, done.out
    return found[0]


def _fails(done: Done, name: str, fix: str) -> None:
    assert done.code == 1
    assert done.json["ok"] is False
    finding = _finding(done, name)
    assert finding["state"] == "fail", finding
    assert fix in finding["fix"]


@pytest.fixture
def broker(fleet: Fleet) -> Iterator[sync_redis.Redis]:
    client = sync_redis.Redis.from_url(fleet.env["NOVA_REDIS_URL"])
    yield client
    client.close()


def test_a_fleet_in_good_health_passes(nova: Nova) -> None:
    done = nova("doctor", "--json")
    assert done.code == 0, done.out
    assert done.json["ok"] is True
    # Other tests have run orchestrations here, whose agents hold more than workers get.
    names = {finding["name"] for finding in done.json["findings"]} - {"tools in orchestrations"}
    # And others have made keys and agents of many kinds, and a channel that rests.
    names = {name for name in names if not name.startswith("inbound channel ")} - {"scope trust", "scope secrets"}
    # Where the machine of these tests is a container, its workers say that files of agents end with it, and so does
    # the check of its disks once an agent of another test has a file.
    names = {name for name in names if not name.startswith("worker on ")} - {"files of agents"}
    assert names == {
        *("database", "connections", "pgvector", "search index", "schema", "clock of postgres", "audit log"),
        *(
            "broker",
            "eviction",
            "persistence",
            "queues",
            "clock of redis",
            "workers",
            "sandbox",
            "sandbox here",
            "beat",
        ),
        *("disk of data", "disk of agents", "temporary files"),
        *("api", "api ready", "key", "work orders"),
    }
    shown = nova("doctor").out
    assert "✓ database" in shown
    assert "✗" not in shown


async def test_tools_that_workers_of_an_orchestration_do_not_get_are_listed_until_that_is_decided(fleet: Fleet) -> None:
    async with NovaClient(fleet.api_url, fleet.api_key) as client:
        grants = {"tasks": CapabilityGrant(), "notes": CapabilityGrant(tools=("note_create", "note_delete"))}
        await client.agents.create(AgentCreate(id="led", name="Led", engine="scripted", capabilities=grants))
        before = await client.orchestration_config.get()
        assert not [each for each in await check_orchestrations(client) if " led " in each.detail]
        await client.orchestrations.start(OrchestrationCreate(task='{"script": [{"say": "Done."}]}', agent_id="led"))
        (found,) = [each for each in await check_orchestrations(client) if " led " in each.detail]
        assert found.state == "warn"
        assert found.detail.startswith("workers of led do not get note_delete, task_add_resource")
        assert "task_list" not in found.detail
        decided = OrchestrationConfigPut(text=f"{before.text}\ncapability_profiles: {{}}\n")
        await client.orchestration_config.put(decided)
        assert await check_orchestrations(client) == []
        await client.orchestration_config.put(OrchestrationConfigPut(text=before.text, models_text=before.models_text))


@proves("authors.checked")
async def test_documents_that_keys_of_few_rights_cannot_change_are_listed(fleet: Fleet) -> None:
    headers = {"X-Token": "${secret:TOKEN}"}
    servers = {"search": {"type": "http", "url": "https://search.example.org/mcp", "headers": headers}}
    async with NovaClient(fleet.api_url, fleet.api_key) as client:
        before = {each.name for each in await check_authors(client)}
        grants = {"mcp": CapabilityGrant(config={"servers": servers})}
        await client.agents.create(AgentCreate(id="holder", name="Holder", engine="scripted", capabilities=grants))
        narrow = await client.keys.create(KeyCreate(name="ci", scopes=["agents", "trust"]))
        (found,) = [each for each in await check_authors(client) if each.name == "scope secrets"]
        assert found.state == "ok"
        assert "agent holder (the secret 'TOKEN')" in found.detail
        assert "ci" in found.detail
        await client.keys.revoke(narrow.id)
        await client.agents.delete("holder")
        assert {each.name for each in await check_authors(client)} == before


@proves("ceilings.sandbox")
@pytest.mark.parametrize("kind", ["bubblewrap", None])
async def test_a_machine_without_a_sandbox_is_named_with_what_to_do(
    redis: AsyncRedis, settings: Settings, kind: str | None
) -> None:
    presence = Presence(
        redis,
        SystemClock(),
        worker_id="wkr_1",
        queues=QUEUES,
        slots=1,
        busy=lambda: 0,
        suspects=lambda: 0,
        draining=lambda: False,
        sandbox=kind,
        trial=SandboxTrial(user=65_534, egress=["proxy"], missing=["a moon"])
        if kind
        else SandboxTrial(why_none="There is no bwrap"),
        heartbeat_dir=None,
    )
    await presence.report()
    (found,) = [each for each in await check_broker(settings.require_redis_url()) if each.name == "sandbox"]
    shown = f"none (1); none on {socket.gethostname()}: There is no bwrap"
    tried = "bubblewrap (1); a command (user 65534) reached nothing of others; without a moon"
    assert (found.state, found.detail) == (("ok", tried) if kind else ("warn", shown))
    assert ("nova tenants ceilings" in found.fix) == (kind is None)


async def test_records_of_workers_that_cannot_be_read_are_counted_and_warnings_of_workers_shown(
    redis: AsyncRedis, settings: Settings
) -> None:
    presence = Presence(
        redis,
        SystemClock(),
        worker_id="wkr_1",
        queues=QUEUES,
        slots=1,
        busy=lambda: 0,
        suspects=lambda: 0,
        draining=lambda: False,
        sandbox=None,
        heartbeat_dir=None,
        warnings=lambda: ["no room for temporary files in '/tmp'"],
    )
    await presence.report()
    await redis.set(worker_presence("wkr_2"), "{", ex=60)
    await redis.zadd(workers_index(), {"wkr_2": 1})
    found = {each.name: each for each in await check_broker(settings.require_redis_url())}
    assert found["workers"].detail.startswith("1 alive")
    assert found["worker records"].detail.startswith("1 ")
    assert found[f"worker on {socket.gethostname()}"].detail == "no room for temporary files in '/tmp'"


async def test_the_age_of_beats_last_tick_is_known(redis: AsyncRedis, settings: Settings) -> None:
    async def found() -> Finding:
        (beat,) = [each for each in await check_broker(settings.require_redis_url()) if each.name == "beat"]
        return beat

    never = await found()
    assert (never.state, "nova beat" in never.fix) == ("fail", True)
    for age_s, state in ((2, "ok"), (3_600, "fail")):
        await redis.set(beat_tick(), "host-a:17", ex=BEAT_TTL_S - age_s)
        beat = await found()
        assert (beat.state, beat.detail.endswith(" old, from host-a:17")) == (state, True), beat


async def test_a_provider_that_agents_use_and_workers_could_not_is_named(
    redis: AsyncRedis, settings: Settings, fleet: Fleet
) -> None:
    engines: dict[str, dict[str, str | None]] = {
        "anthropic": {"": "the key is refused"},
        "openai": {"local": None},
        "gemini": {"": "no key"},
    }
    report = ProviderReport(checked_at=SystemClock().now(), engines=engines)
    await redis.set(provider_reports(), report.model_dump_json(), ex=60)
    for target in (Target(fleet.api_url, fleet.api_key, "here", "here"), None):
        found = await check_providers(settings.require_redis_url(), target, "anthropic")
        assert [(each.name, each.state, each.detail) for each in found] == [
            ("provider anthropic", "warn", "the key is refused")
        ]
        assert await check_providers(settings.require_redis_url(), target, "openai") == []


def test_what_is_paused_is_named_with_how_to_resume_it(nova: Nova) -> None:
    nova.good("agents", "create", "resting", "--name", "Resting", "--engine", "scripted")
    nova.good("fleet", "pause", "--agent", "resting", "--reason", "it is Sunday")
    try:
        found = _finding(nova("doctor", "--json"), "agent resting")
    finally:
        nova.good("fleet", "resume", "--agent", "resting")
    assert found["state"] == "warn"
    assert found["detail"].endswith(": it is Sunday")
    assert found["fix"] == "`nova fleet resume --agent resting`"


async def test_a_paused_trigger_and_a_resting_channel_are_named_with_what_ends_that(fleet: Fleet) -> None:
    database = PostgresDatabase(fleet.env["NOVA_DATABASE_URL"], pool_size=1)
    async with NovaClient(fleet.api_url, fleet.api_key) as client:
        target = Target(fleet.api_url, fleet.api_key, "here", "here")
        made = await client.triggers.create(
            TriggerCreate(agent_id="nova", kind="cron", schedule="0 0 1 1 *", prompt="Hello.", title="Yearly")
        )
        await database.execute("UPDATE triggers SET paused_reason = '3 runs failed' WHERE id = :id", id=made.id)
        await database.close()
        (found,) = [each for each in await check_api(client, target) if each.name == "triggers"]
        pause = LeasePause(error="Telegram: Unauthorized", next_try_s=30)
        await client.leases.put("channel:doctor", LeaseRequest(holder="a", ttl_s=0.01, pause=pause))
        (resting,) = [each for each in await check_api(client, target) if each.name == "inbound channel doctor"]
        await client.triggers.delete(made.id)
    assert (resting.state, resting.fix) == ("warn", "fix what it says, and `nova channels retry doctor`")
    assert resting.detail.endswith(": Telegram: Unauthorized")
    assert (found.state, found.detail) == ("warn", "1 paused: Yearly (3 runs failed)")
    assert f"nova triggers resume {made.id}" in found.fix


async def test_a_console_that_does_not_answer_is_named_with_where_to_look() -> None:
    (found,) = await check_console(f"http://127.0.0.1:{free_port()}")
    assert (found.name, found.state) == ("console", "warn")
    assert "`nova up`" in (found.fix or "")
    assert await check_console(None) == []


def test_no_servers_at_all(nova: Nova) -> None:
    done = nova("doctor", "--json", NOVA_DATABASE_URL="", NOVA_REDIS_URL="")
    assert done.code == 1


def test_a_database_that_is_not_there(nova: Nova) -> None:
    done = nova("doctor", "--json", NOVA_DATABASE_URL="postgresql://nobody@127.0.0.1:9/none")
    _fails(done, "database", "NOVA_DATABASE_URL")


def test_a_database_that_was_never_migrated(nova: Nova, postgres_url_admin: str) -> None:
    done = nova("doctor", "--json", NOVA_DATABASE_URL=postgres_url_admin)
    _fails(done, "schema", "nova migrate")
    _fails(done, "pgvector", "nova migrate")


def test_a_broker_that_is_not_there(nova: Nova) -> None:
    _fails(nova("doctor", "--json", NOVA_REDIS_URL="redis://127.0.0.1:9/0"), "broker", "NOVA_REDIS_URL")


async def test_a_broker_that_is_too_old(redis: AsyncRedis, settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    told = {**await redis.info(), "redis_version": "6.2.14"}
    told.pop("valkey_version", None)

    async def info(_: AsyncRedis) -> dict[str, Any]:
        return told

    monkeypatch.setattr(AsyncRedis, "info", info)
    found = {each.name: each for each in await check_broker(settings.require_redis_url())}
    assert found["broker"].state == "fail"
    assert "6.2.14" in found["broker"].detail
    assert "Redis 7 or later" in found["broker"].fix


def test_a_broker_that_evicts(nova: Nova, broker: sync_redis.Redis) -> None:
    broker.config_set("maxmemory-policy", "allkeys-lru")
    try:
        _fails(nova("doctor", "--json"), "eviction", "noeviction")
    finally:
        broker.config_set("maxmemory-policy", "noeviction")


def test_a_broker_that_forgets_is_a_warning(nova: Nova, broker: sync_redis.Redis) -> None:
    before = str(broker.config_get("appendonly")["appendonly"])
    broker.config_set("appendonly", "no")
    try:
        done = nova("doctor", "--json")
        assert done.code == 0
        assert _finding(done, "persistence")["state"] == "warn"
        assert "! persistence" in nova("doctor").out
    finally:
        broker.config_set("appendonly", before)


def test_a_queue_key_of_another_program(nova: Nova, fleet: Fleet) -> None:
    url = logical_database(fleet.env["NOVA_REDIS_URL"], 4)
    with sync_redis.Redis.from_url(url) as other:
        other.set(broker_queue("interactive"), "x", ex=60)
        done = nova("doctor", "--json", NOVA_REDIS_URL=url)
        _fails(done, "queues", "a Redis database of its own")
        _fails(done, "workers", "nova worker")
        other.flushdb()


def test_an_api_that_is_not_there(nova: Nova) -> None:
    _fails(nova("doctor", "--json", NOVA_API_URL="http://127.0.0.1:9"), "api", "nova up")


def test_another_program_on_the_port(nova: Nova) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.listen()
        url = f"http://127.0.0.1:{other.getsockname()[1]}"
        _fails(nova("doctor", "--json", NOVA_API_URL=url), "api", "nova up")


def test_no_key(nova: Nova) -> None:
    _fails(nova("doctor", "--json", NOVA_API_KEY=""), "key", "nova up")


def test_a_wrong_key(nova: Nova) -> None:
    _fails(nova("doctor", "--json", NOVA_API_KEY="nova_wrong"), "key", "NOVA_API_KEY")


def test_a_key_that_may_not_run(nova: Nova) -> None:
    made = nova.good("keys", "create", "keys only", "--scope", "keys", "--json").json
    _fails(nova("doctor", "--json", NOVA_API_KEY=made["key"]), "key", "--scope runs")


def test_all_scopes_of_a_key_are_shown(nova: Nova) -> None:
    every = sorted(whole_scopes())
    assert f"may use {', '.join(every)}; from" in _finding(nova("doctor", "--json"), "key")["detail"]
    for given in (("workspace",), ("runs", "secrets"), ("agents", "operator")):
        options = [word for scope in given for word in ("--scope", scope)]
        made = nova.good("keys", "create", "some", *options, "--json").json
        found = _finding(nova("doctor", "--json", NOVA_API_KEY=made["key"]), "key")
        assert found["detail"].startswith(f"may use {', '.join(given)}{';' if 'runs' in given else ', not runs'}")


def test_walls_are_tried_from_outside_with_what_to_do_about_each(nova: Nova) -> None:
    done = nova("security", "check", "--patience", "1")
    assert done.code == 1, "the fleet waits longer for slow clients"
    assert "✓ routes without a key" in done.out
    assert "✗ slow head" in done.out
    assert "→ lower NOVA_API__HEAD_TIMEOUT_S" in done.out
    assert {line.split("  ")[0] for line in done.out.splitlines() if line[0] == "✗"} == {"✗ slow head", "✗ slow body"}


def test_a_home_with_a_damaged_state_file(nova: Nova) -> None:
    home = Path(nova.env["NOVA_HOME"])
    (home / "nova.json").write_text("{")
    done = nova("doctor", "--json")
    assert done.code == 1
    assert "nova.json" in _finding(done, "home")["detail"]
    assert {_finding(done, name)["state"] for name in ("database", "broker", "api", "key")} == {"ok"}


def test_migrate_brings_an_empty_database_to_this_version(nova: Nova, empty_url: str, tmp_path: Path) -> None:
    before = nova("migrate", "--status", NOVA_DATABASE_URL=empty_url)
    assert before.code == 1
    assert "nova migrate" in before.out
    done = nova.good("migrate", "--json", NOVA_DATABASE_URL=empty_url).json
    assert done["before"] is None
    assert done["at_head"] is True
    assert "nothing to do" in nova.good("migrate", NOVA_DATABASE_URL=empty_url).out
    assert nova.good("migrate", "--status", NOVA_DATABASE_URL=empty_url).code == 0
    kept = nova("migrate", "--first-key", NOVA_DATABASE_URL=empty_url)
    assert (kept.code, kept.out) == (1, "")
    assert "--first-key-file PATH" in kept.err
    missing = nova("migrate", "--first-key-file", str(tmp_path / "none" / "key"), NOVA_DATABASE_URL=empty_url)
    assert (missing.code, "no key was made" in missing.err) == (1, True)
    made = nova.good("migrate", "--first-key-file", str(tmp_path / "key"), NOVA_DATABASE_URL=empty_url)
    key = (tmp_path / "key").read_text().strip()
    assert key.startswith("nova_")
    assert key not in made.out + made.err
    assert (tmp_path / "key").stat().st_mode & 0o777 == 0o600
    asyncio.run(_execute(empty_url, "UPDATE alembic_version SET version_num = '9999'"))
    for options in ((), ("--status",)):
        later = nova.good("migrate", *options, NOVA_DATABASE_URL=empty_url)
        assert "at 9999, of a later version" in later.out
        assert len(later.out.splitlines()) == 1
    again = nova.good("migrate", "--first-key-file", str(tmp_path / "key"), NOVA_DATABASE_URL=empty_url)
    assert "A key exists, so none was made." in again.err


def test_migrate_without_a_database_says_what_to_set(nova: Nova) -> None:
    refused = nova("migrate", NOVA_DATABASE_URL="postgresql://nobody@127.0.0.1:9/none")
    assert refused.code == 1
    assert "NOVA_DATABASE_URL" in refused.err
    assert len(refused.err.splitlines()) == 1


async def _execute(url: str, statement: str) -> None:
    database = PostgresDatabase(url, pool_size=1)
    await database.execute(statement)
    await database.close()
