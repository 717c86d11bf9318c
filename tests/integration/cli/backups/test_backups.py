"""`nova backup` and `nova restore`: a live fleet's database as a file, and back under another name."""

import asyncio
import json
import os
import resource
import stat
import tempfile
from collections.abc import AsyncIterator, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from models import migrate
from models.rights.logins import ensure_login
from models.rights.restored import create_database, drop_database
from nova_workers.base.errors import Conflict
from nova_workers.cli.backups.container import Manifest, open_backup, write_backup
from nova_workers.cli.backups.dump import back_up, write_snapshot
from nova_workers.cli.backups.files import write_files
from nova_workers.cli.backups.load import load_backup
from nova_workers.cli.backups.server import Server
from nova_workers.client.client import NovaClient
from nova_workers.contracts.http.feedback import FeedbackGive
from nova_workers.contracts.http.leases import LeaseRequest
from nova_workers.contracts.http.wire import StatelessRunCreate
from nova_workers.devstack.home import lock_home
from nova_workers.domain.delivery.sql.outbox import claim_deliveries
from nova_workers.domain.effects.sql import ClaimedEffects, claim_effects
from nova_workers.domain.keys.sql.leases import acquire_lease
from nova_workers.domain.runs.sql.fleet import Switch, resume
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.domain.upkeep.sql.catalog import count_rows
from nova_workers.ledger.database import Connection, Database, PostgresDatabase
from tests.integration.cli.conftest import logical_database
from tests.requirements import proves
from tests.support.processes.command_line import Nova
from tests.support.processes.fleet import Fleet, add_api_key
from tests.support.servers.databases import own_database
from tests.support.waiting import until

_CHANGED_BY_RESTORE = {
    "runs": ("status", "lease_expires_at", "worker_id", "queued_at", "rang_at"),
    "threads": ("active_run_id",),
    "effects": ("status", "attempts", "due_at"),
    "leases": ("expires_at", "fence", "token_hash"),
}
_OTHER_ROWS = ("changes", "run_attempts", "switches", "worker_sessions")
"""A requeued run has an attempt and a change more, the restored fleet a pause, and no worker."""

# Of what is granted to whom, and which rows each role sees.
_RIGHTS = """
SELECT c.relname, c.relrowsecurity, c.relacl::text,
       ARRAY(SELECT p.polname || pg_get_expr(p.polqual, p.polrelid) FROM pg_policy p WHERE p.polrelid = c.oid
              ORDER BY 1) AS policies
  FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace ORDER BY 1
"""


_DEFAULT_RIGHTS = "SELECT defaclobjtype, defaclacl::text FROM pg_default_acl ORDER BY 1"
# Runs that wait keep their threads; other tests on the same fleet may have left some.
_HELD = """
SELECT count(*) FROM threads t LEFT JOIN runs r ON r.id = t.active_run_id
 WHERE t.active_run_id IS NOT NULL AND r.status IS DISTINCT FROM 'waiting'
"""
_LOSSES = "SELECT count(*) FROM runs WHERE losses > 0"
_IS_RUNNING = "SELECT status = 'running' FROM runs WHERE id = :run_id"
_ENDED = "SELECT count(*) FROM runs WHERE status = 'succeeded'"
_ENDED_RUN = "SELECT id FROM runs WHERE status = 'succeeded' AND tenant_id = :tenant_id LIMIT 1"
_KEY_COLUMNS = """
SELECT c.relname AS table_name, a.attname AS column_name,
       col_description(c.oid, a.attnum) LIKE '%master key%' AS of_master_key
  FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid
 WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attname LIKE '%key\\_id'
"""
_ADD_DELIVERY = """
INSERT INTO deliveries (id, tenant_id, kind, target, payload)
VALUES ('dlv_restored', :tenant_id, 'notification', 'test', '{}')
"""
_ADD_EFFECT = """
INSERT INTO effects (id, tenant_id, run_id, thread_id, kind, position)
SELECT 'eff_restored', r.tenant_id, r.id, r.thread_id, 'title', 9
  FROM runs r WHERE NOT EXISTS (SELECT FROM effects e WHERE e.run_id = r.id) LIMIT 1
"""
_IS_HELD = "SELECT holds_deliveries FROM switches WHERE scope = 'fleet'"
_LEASE = timedelta(seconds=30)
_SNAPSHOTS = """
SELECT count(*) FROM pg_stat_activity
 WHERE datname = current_database() AND pid <> pg_backend_pid() AND state LIKE 'idle in transaction%'
"""


@dataclass(frozen=True, slots=True)
class _Backup:
    """A file, and what the moment of it was like."""

    path: Path
    manifest: Manifest
    digests: dict[str, str]
    tenant_id: str
    """Of a secret in it."""


async def _digests(connection: Connection) -> dict[str, str]:
    found: dict[str, str] = {}
    for table in await count_rows(connection):
        if table not in _OTHER_ROWS:
            row = f"md5((to_jsonb(t) - '{{{','.join(_CHANGED_BY_RESTORE.get(table, ()))}}}'::text[])::text)"
            digest = await connection.fetchval(f"SELECT md5(string_agg({row}, '' ORDER BY {row})) FROM {table} t")
            found[table] = str(digest)
    return found


_MASTER_KEY = ("of-the-backup", os.urandom(32))
_SECRET = ("TOKEN", "correct horse battery")


async def _back_up_under_load(fleet: Fleet, path: Path, files: Path) -> tuple[Manifest, dict[str, str], str]:
    """Back up while messages come in, with a run in the middle of its turn; return what the snapshot saw."""
    url = fleet.env["NOVA_DATABASE_URL"]
    database = PostgresDatabase(url, pool_size=2)
    stopped = asyncio.Event()
    key, tenant_id = await add_api_key(url)
    await Secrets(database, Vault([_MASTER_KEY])).put(tenant_id, *_SECRET, by="person")
    async with NovaClient(fleet.api_url, key) as client:

        async def load() -> None:
            while not stopped.is_set():
                await client.runs.create(StatelessRunCreate(message="hello"))

        slow = await client.runs.create(StatelessRunCreate(message=json.dumps({"script": [{"sleep_s": 60}]})))
        try:
            await until(lambda: database.fetchval(_IS_RUNNING, run_id=slow.id))
            before = await database.fetchval(_ENDED)
            async with asyncio.TaskGroup() as group:
                group.create_task(load())
                await until(lambda: database.fetchval(f"SELECT ({_ENDED}) > :before", before=before))
                # Whose column of the key has the name of those of master keys.
                await client.feedback.give(
                    await database.fetchval(_ENDED_RUN, tenant_id=tenant_id), FeedbackGive(score=1)
                )
                async with database.snapshot() as connection:
                    manifest = await write_snapshot(connection, url, path, files)
                    digests = await _digests(connection)
                stopped.set()
            assert await database.fetchval("SELECT count(*) FROM runs") > manifest.rows["runs"]
        finally:
            await client.runs.cancel(slow.id)
            await database.close()
    return manifest, digests, tenant_id


@pytest.fixture(scope="module")
def backup(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> _Backup:
    """A backup of the fleet of these tests, taken under load."""
    path, files = tmp_path_factory.mktemp("backup") / "nova.backup", tmp_path_factory.mktemp("agents")
    (files / "ten_1" / "nova").mkdir(parents=True)
    (files / "ten_1" / "nova" / "report.txt").write_text("of an agent")
    return _Backup(path, *asyncio.run(_back_up_under_load(fleet, path, files)))


@pytest.fixture
def name(fleet: Fleet, tmp_path: Path) -> Generator[str]:
    """The name of a database that is dropped after the test."""
    name = f"restored_{tmp_path.name.replace('-', '_')}".lower()[:60]
    yield name
    asyncio.run(drop_database(fleet.env["NOVA_DATABASE_URL"], name))


def _other(url: str, name: str) -> str:
    return Server(url, url).named(name).url


async def _exists(url: str, name: str) -> bool:
    database = PostgresDatabase(url, pool_size=1)
    try:
        found = await database.fetchval("SELECT EXISTS (SELECT FROM pg_database WHERE datname = :name)", name=name)
    finally:
        await database.close()
    return bool(found)


async def _compare(nova: Nova, backup: _Backup, name: str) -> None:
    """Compare rows and rights of a restored database with those of the snapshot and of the fleet."""
    source = nova.env["NOVA_DATABASE_URL"]
    restored, original = PostgresDatabase(_other(source, name), pool_size=2), PostgresDatabase(source, pool_size=1)
    try:
        async with restored.connection() as connection:
            assert await _digests(connection) == backup.digests
            assert await connection.fetchval("SELECT count(*) FROM runs WHERE status = 'running'") == 0
            assert await connection.fetchval(_HELD) == 0
            assert await connection.fetchval(_LOSSES) == 0
        assert await restored.fetch(_RIGHTS) == await original.fetch(_RIGHTS)
        assert await restored.fetch(_DEFAULT_RIGHTS) == await original.fetch(_DEFAULT_RIGHTS)
    finally:
        await restored.close()
        await original.close()


@proves("backup.moment", "backup.files", "backup.secrets")
def test_a_backup_under_load_is_restored_with_the_same_rows_rights_secrets_and_files(
    nova: Nova, backup: _Backup, name: str, tmp_path: Path
) -> None:
    files = tmp_path / "agents"
    done = nova.good("restore", str(backup.path), "--into", name, "--files", str(files), "--json").json
    assert (done["files"], done["missing_master_keys"]) == (1, [_MASTER_KEY[0]])
    assert (files / "ten_1" / "nova" / "report.txt").read_text() == "of an agent"
    taken = nova("restore", str(backup.path), "--into", f"{name}_2", "--files", str(files))
    assert (taken.code, "is not empty" in taken.err) == (1, True), taken
    assert stat.S_IMODE(backup.path.stat().st_mode) == 0o600
    assert (done["rows"], done["requeued_runs"] >= 1, done["paused"]) == (
        sum(backup.manifest.rows.values()),
        True,
        True,
    )
    asyncio.run(_compare(nova, backup, name))
    asyncio.run(_read_secret(_other(nova.env["NOVA_DATABASE_URL"], name), backup.tenant_id))


async def _read_secret(url: str, tenant_id: str) -> None:
    database = PostgresDatabase(url, pool_size=1)
    try:
        assert await Secrets(database, Vault([_MASTER_KEY])).get(tenant_id, _SECRET[0]) == _SECRET[1]
        with pytest.raises(Conflict, match="'of-the-backup'"):
            await Secrets(database, Vault([("other", os.urandom(32))])).get(tenant_id, _SECRET[0])
    finally:
        await database.close()


async def test_comments_say_which_columns_have_master_keys(database: Database) -> None:
    rows = await database.fetch(_KEY_COLUMNS)
    found = {f"{row['table_name']}.{row['column_name']}": row["of_master_key"] for row in rows}
    assert {name for name, of_master_key in found.items() if of_master_key} == {
        *("push_configs.key_id", "secrets.key_id", "webhooks.key_id"),
        *("work_order_secrets.key_id", "work_orders.data_key_id"),
    }
    assert set(found.values()) == {True, False}


@proves("restore.held", "restore.empty")
def test_a_restored_fleet_waits_for_its_operator(nova: Nova, backup: _Backup, name: str, tmp_path: Path) -> None:
    source = nova.env["NOVA_DATABASE_URL"]
    asyncio.run(create_database(source, name))
    # Its Redis is that of its home, as `nova up` with a database by URL has it.
    ours = Nova({"NOVA_DATABASE_URL": _other(source, name), "NOVA_HOME": str(tmp_path), "NO_COLOR": "1"})
    kept = tmp_path / "valkey" / "appendonlydir"
    kept.mkdir(parents=True)
    (kept / "appendonly.aof.1.incr.aof").write_text("of the fleet before")
    with lock_home(tmp_path):
        refused = ours("restore", str(backup.path))
    assert (refused.code, "A fleet runs on" in refused.err) == (1, True), refused
    shown = ours.good("restore", str(backup.path))
    assert (tmp_path / "workspace" / "ten_1" / "nova" / "report.txt").read_text() == "of an agent"
    assert "nova fleet resume --scope fleet" in shown.err
    assert not kept.exists()
    asyncio.run(_stays_held(_other(source, name)))
    # It is not empty any more, so it is not restored into again, in place or by its name.
    again = nova(
        "restore",
        str(backup.path),
        NOVA_DATABASE_URL=_other(source, name),
        NOVA_REDIS_URL=logical_database(nova.env["NOVA_REDIS_URL"], 9),
    )
    assert (again.code, "is not empty" in again.err) == (1, True), again
    taken = nova("restore", str(backup.path), "--into", name)
    assert (taken.code, f"There is a database {name!r} already" in taken.err) == (1, True), taken


@proves("restore.held")
async def test_a_restore_that_dies_once_a_fleet_can_start_on_its_database_has_held_that_fleet(
    nova: Nova, backup: _Backup, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def die(*_: object) -> None:
        raise ConnectionError

    async def empty_redis() -> None:
        emptied.append(await _exists(source, name))

    source, emptied = nova.env["NOVA_DATABASE_URL"], list[bool]()
    url = _other(source, name)
    await create_database(source, name)
    monkeypatch.setattr(migrate, "upgrade", die)
    with pytest.raises(ConnectionError):
        await load_backup(open_backup(backup.path), Server(url, url), drop_deliveries=False, empty_redis=empty_redis)
    assert emptied == [True]
    assert await migrate.current(url) == backup.manifest.schema_revision
    database = PostgresDatabase(url, pool_size=1)
    async with database.connection() as connection:
        assert await connection.fetchval(_IS_HELD)
        assert await connection.fetchval("SELECT count(*) FROM runs WHERE status = 'running'") == 0
        assert await connection.fetchval("SELECT count(*) FROM worker_sessions") == 0
    await database.close()


async def _stays_held(url: str) -> None:
    """Check that nothing leaves a restored database, and that it does once the fleet is resumed."""
    database = PostgresDatabase(url, pool_size=2)
    try:
        tenant_id = await database.fetchval("SELECT min(id) FROM tenants")
        await database.execute(_ADD_DELIVERY, tenant_id=tenant_id)
        await database.execute(_ADD_EFFECT)
        lease = LeaseRequest(holder="a channel", ttl_s=30)
        async with database.connection() as connection:
            assert await _claim(connection) == 0
            assert await claim_effects(connection, [("title", 10)], lease=_LEASE, max_attempts=3) == ClaimedEffects()
            with pytest.raises(Conflict, match="nova fleet resume"):
                await acquire_lease(connection, tenant_id, "channel:test", lease)
            assert await resume(connection, Switch("fleet", ""))
            assert await _claim(connection) == 1
            found = await claim_effects(connection, [("title", 10)], lease=_LEASE, max_attempts=3)
            (effect,) = found.claimed
            assert effect.id == "eff_restored"
            assert (await acquire_lease(connection, tenant_id, "channel:test", lease)).fence == 1
    finally:
        await database.close()


async def _claim(connection: Connection) -> int:
    claimed = await claim_deliveries(
        connection,
        active_attempts={},
        per_lane=4,
        rest_after=3,
        channels=["test"],
        webhooks=True,
        limit=10,
        lease=_LEASE,
    )
    return len(claimed)


@proves("backup.whole")
def test_a_damaged_or_newer_file_is_refused(nova: Nova, backup: _Backup, name: str, tmp_path: Path) -> None:
    whole = backup.path.read_bytes()
    middle = len(whole) // 2
    newer = backup.manifest.model_copy(update={"schema_revision": "9999"})
    for content, message in (
        (whole[:middle], "only a part of one"),
        (b"PGDMP" + bytes(2_000), "is no file of `nova backup`"),
        (whole[:middle] + bytes([whole[middle] ^ 1]) + whole[middle + 1 :], "is damaged"),
        (_with_manifest(newer, tmp_path), "knows schemas up to"),
    ):
        file = tmp_path / "given.backup"
        file.write_bytes(content)
        done = nova("restore", str(file), "--into", name)
        assert (done.code, message in done.err) == (1, True), done
    fewer = {**backup.manifest.rows, "runs": 1}
    file.write_bytes(_with_manifest(backup.manifest.model_copy(update={"rows": fewer}), tmp_path, backup))
    done = nova("restore", str(file), "--into", name)
    assert (done.code, "runs has" in done.err) == (1, True), done
    # What was made for it is gone.
    assert not asyncio.run(_exists(nova.env["NOVA_DATABASE_URL"], name))


def _with_manifest(manifest: Manifest, folder: Path, backup: _Backup | None = None) -> bytes:
    """Return a file with another manifest, around a dump of a few bytes or that of a backup."""
    found = None if backup is None else open_backup(backup.path)

    async def dump() -> AsyncIterator[bytes]:
        if found is not None:
            yield found.path.read_bytes()[found.offset : found.offset + found.manifest.dump_bytes]
        else:
            yield b"PGDMP"

    def described(size: int, digest: str) -> Manifest:
        return manifest.model_copy(update={"dump_bytes": size, "dump_sha256": digest, "files": None})

    path = folder / "rewritten.backup"
    asyncio.run(write_backup(path, dump(), described))
    return path.read_bytes()


@proves("backup.whole")
def test_a_backup_that_finds_no_room_leaves_no_file(nova: Nova, tmp_path: Path) -> None:
    file = tmp_path / "full.backup"
    with _files_of_at_most(50_000):
        done = nova("backup", str(file))
    assert (done.code, "cannot be written (File too large)" in done.err) == (1, True), done
    assert not [path.name for path in tmp_path.iterdir() if "backup" in path.name]
    assert nova.good("backup", str(file), "--json").json["bytes"] == file.stat().st_size
    again = nova("backup", str(file))
    assert (again.code, "exists" in again.err) == (1, True), again


@contextmanager
def _files_of_at_most(size_bytes: int) -> Generator[None]:
    """Let this process write no larger file, as a full disk would."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@proves("backup.whole")
async def test_files_are_read_when_the_snapshot_has_ended(
    postgres_url_admin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Vacuum keeps what was deleted after a snapshot, and the files of agents may take hours."""
    files = tmp_path / "agents"
    files.mkdir()
    snapshots: list[int] = []

    async def count(url: str) -> int:
        database = PostgresDatabase(url, pool_size=1)
        try:
            return await database.fetchval(_SNAPSHOTS)
        finally:
            await database.close()

    def look(*given: Any) -> Any:
        with ThreadPoolExecutor(1) as thread:
            snapshots.append(thread.submit(asyncio.run, count(url)).result())
        return write_files(*given)

    monkeypatch.setattr("nova_workers.cli.backups.container.write_files", look)
    async with own_database(postgres_url_admin) as url:
        manifest = await back_up(url, tmp_path / "nova.backup", files)
    assert (snapshots, manifest.files) == ([0], 0)
    assert manifest.rows["tenants"] >= 0


def test_a_user_who_does_not_own_the_tables_cannot_back_them_up(nova: Nova, tmp_path: Path) -> None:
    owner = nova.env["NOVA_DATABASE_URL"]
    fleet = urlsplit(owner)._replace(netloc="backup_reader:secret@").geturl()
    asyncio.run(ensure_login(owner, fleet))
    done = nova("backup", str(tmp_path / "file.backup"), NOVA_DATABASE_URL=fleet)
    assert (done.code, "NOVA_DATABASE_OWNER_URL" in done.err) == (1, True), done


def test_a_backup_becomes_the_database_of_an_embedded_stack(backup: _Backup) -> None:
    with tempfile.TemporaryDirectory(prefix="nova-restored-") as home:
        nova = Nova({"NOVA_HOME": home, "NO_COLOR": "1"})
        nothing = nova("backup", f"{home}/nothing.backup")
        assert (nothing.code, "There is no database" in nothing.err) == (1, True), nothing
        assert nova.good("restore", str(backup.path), "--json").json["rows"] == sum(backup.manifest.rows.values())
        # Its Postgres was stopped, and is started for a backup.
        made = nova.good("backup", f"{home}/again.backup", "--json").json["manifest"]
        assert made["rows"] == {**backup.manifest.rows, **{name: made["rows"][name] for name in _OTHER_ROWS}}
