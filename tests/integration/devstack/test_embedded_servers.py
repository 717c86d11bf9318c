"""The embedded servers."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import tempfile
from collections.abc import Generator
from pathlib import Path

import asyncpg
import pytest
from redis.asyncio import Redis

from nova_workers.base.errors import ConfigurationError
from nova_workers.devstack.servers.postgres import EmbeddedPostgres
from nova_workers.devstack.servers.valkey import EmbeddedValkey
from nova_workers.shell_sandbox import SANDBOX_UID
from tests.requirements import proves
from tests.support.processes.inspection import wait_until_gone
from tests.support.servers.databases import running


@pytest.fixture
def home() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="nova-servers-", ignore_cleanup_errors=True) as folder:
        yield Path(folder)


async def _postgres_facts(url: str) -> dict[str, str]:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE EXTENSION vector")
    names = ("fsync", "synchronous_commit", "full_page_writes", "listen_addresses", "max_connections")
    facts = {name: await connection.fetchval(f"SHOW {name}") for name in names}
    facts["distance"] = str(await connection.fetchval("SELECT '[1,2]'::vector <-> '[1,3]'::vector"))
    facts["version"] = str(connection.get_server_version().major)
    await connection.close()
    return facts


@proves("security.embedded-user")
def test_postgres_is_durable_private_and_has_vectors(home: Path) -> None:
    postgres = EmbeddedPostgres(home)
    with running(postgres.spec(), home / "log"):
        if os.geteuid() == 0:
            _check_that_commands_of_tenants_cannot_reach(home)
        asyncio.run(postgres.create_database())
        asyncio.run(postgres.create_database())
        assert asyncio.run(_postgres_facts(postgres.url())) == {
            "fsync": "on",
            "synchronous_commit": "on",
            "full_page_writes": "on",
            "listen_addresses": "",
            "max_connections": "200",
            "distance": "1.0",
            "version": "18",
        }


def _check_that_commands_of_tenants_cannot_reach(home: Path) -> None:
    """Check as the user of tenants' commands, without the sandbox that hides the folder besides."""
    home.chmod(0o755)
    tries = 'cat "$1/PG_VERSION"; test -S "$1/.s.PGSQL.5432" || echo "no socket"'
    done = subprocess.run(
        ["/bin/sh", "-c", tries, "sh", home / "postgres"],
        user=SANDBOX_UID, group=SANDBOX_UID, extra_groups=[], capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "no socket\n"
    assert "Permission denied" in done.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
@proves("security.embedded-user")
def test_data_of_a_release_before_changes_its_owner(home: Path) -> None:
    data = home / "postgres"
    (data / "base").mkdir(parents=True)
    for path, text in ((data / "PG_VERSION", "18\n"), (data / "base" / "1", "")):
        path.write_text(text)
    for path in (data, *data.rglob("*")):
        os.chown(path, SANDBOX_UID, SANDBOX_UID)
    EmbeddedPostgres(home).spec()
    owners = {path.stat().st_uid for path in (data, *data.rglob("*"))}
    assert len(owners) == 1
    assert owners.isdisjoint({0, SANDBOX_UID})


async def _write(url: str) -> None:
    client = Redis.from_url(url)
    await client.set("kept", "yes")
    await client.aclose()


async def _read(url: str) -> tuple[object, object]:
    client = Redis.from_url(url)
    kept = await client.get("kept")
    policy = await client.config_get("*")
    await client.aclose()
    return kept, {name: policy[name] for name in ("port", "appendonly", "appendfsync", "maxmemory-policy", "databases")}


def test_valkey_keeps_its_data_and_listens_on_its_socket_only(home: Path) -> None:
    valkey = EmbeddedValkey(home, databases=3)
    with running(valkey.spec(), home / "log"):
        asyncio.run(_write(valkey.url(2)))
    with running(valkey.spec(), home / "log"):
        kept, settings = asyncio.run(_read(valkey.url(2)))
    assert kept == b"yes"
    assert settings == {
        "port": "0",
        "appendonly": "yes",
        "appendfsync": "everysec",
        "maxmemory-policy": "noeviction",
        "databases": "3",
    }


def test_both_serve_from_a_home_whose_path_is_too_long_for_a_socket(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(home))
    deep = home / "/".join(["a-rather-long-name"] * 8)
    deep.mkdir(parents=True)
    postgres, valkey = EmbeddedPostgres(deep), EmbeddedValkey(deep)
    with running(postgres.spec(), home / "log"), running(valkey.spec(), home / "log2"):
        asyncio.run(postgres.create_database())
        asyncio.run(_write(valkey.url()))
    assert "a-rather-long-name" not in postgres.url() + valkey.url()


def test_data_of_another_version_is_refused_with_what_to_do(home: Path) -> None:
    (home / "postgres").mkdir()
    (home / "postgres" / "PG_VERSION").write_text("16\n")
    with pytest.raises(ConfigurationError, match="holds data of Postgres '16'; this version runs 18"):
        EmbeddedPostgres(home).spec()


def test_both_die_with_the_process_that_started_them(home: Path) -> None:
    code = """
import asyncio, os, signal, subprocess, sys, time
from pathlib import Path
from nova_workers.devstack.servers.postgres import EmbeddedPostgres
from nova_workers.devstack.servers.valkey import EmbeddedValkey
home = Path(sys.argv[1])
specs = [EmbeddedPostgres(home).spec(), EmbeddedValkey(home).spec()]
options = {"start_new_session": True, "stdout": subprocess.DEVNULL}
children = [subprocess.Popen(spec.command(), env=spec.environment(), **options) for spec in specs]
for spec in specs:
    while not asyncio.run(spec.ready()):
        time.sleep(0.02)
print(*(child.pid for child in children), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", code, str(home)], stdout=subprocess.PIPE, timeout=180, check=False)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 2
    assert wait_until_gone(pids, 20.0) == set()
