"""`nova secrets`: the value comes by stdin, and is never printed."""

from __future__ import annotations

import asyncio
import os
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from nova_workers.base.config import Settings
from nova_workers.base.master_keys import FixedKeys
from nova_workers.domain.secrets.rules.service import Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import served
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.support.processes.command_line import Nova

VALUE = "correct horse battery"


def _key(name: str) -> str:
    return f"{name}:{b64encode(os.urandom(32)).decode()}"


OLD, NEW = _key("old"), _key("new")


class CommandWithApi:
    """The command, with an API that is served on the test's own loop."""

    def __init__(self, nova: Nova) -> None:
        self._nova = nova

    async def __call__(self, *words: str, stdin: str = "", good: bool = True) -> str:
        run = self._nova.good if good else self._nova
        done = await asyncio.to_thread(run, "secrets", *words, stdin=stdin)
        assert good == (done.code == 0), done.err
        assert VALUE not in done.out + done.err
        return done.out + done.err


@pytest.fixture
async def tenant(database: Database) -> Tenant:
    return await make_tenant(database)


@pytest.fixture
async def line(settings: Settings, tenant: Tenant, tmp_path: Path) -> AsyncIterator[CommandWithApi]:
    given = Settings.model_validate({**settings.model_dump(), "secrets": {"keys": [NEW, OLD]}})
    # The API logs into the same streams.
    with capture_logs():
        async with served(given) as (url, _):
            yield CommandWithApi(
                Nova({"NOVA_HOME": str(tmp_path), "NOVA_API_URL": url, "NOVA_API_KEY": tenant.key, "NO_COLOR": "1"})
            )


async def test_a_secret_is_set_from_stdin_listed_and_removed(
    line: CommandWithApi, database: Database, tenant: Tenant
) -> None:
    assert await line("set", "TOKEN", "--description", "for tests", stdin=f"{VALUE}\n") == "set TOKEN\n"
    assert await Secrets(database, Vault.of(FixedKeys([NEW]))).get(tenant.id, "TOKEN") == VALUE
    assert "for tests" in await line("list")
    assert '"name":"TOKEN"' in (await line("list", "--json")).replace(" ", "").replace("\n", "")
    assert await line("delete", "TOKEN") == "deleted TOKEN\n"
    assert "No secrets" in await line("list")


@pytest.mark.parametrize(
    ("words", "stdin", "says"),
    [
        (["set", "token"], VALUE, "'token' is no name of a secret"),
        (["set", "../keys"], VALUE, "is no name of a secret"),
        (["set", "TOKEN"], "", "it needs 6 to 65536"),
        (["set", "TOKEN"], "abc", "fewer than 6"),
        (["set", "TOKEN"], "x" * 65_537, "it needs 6 to 65536"),
        (["set", "TOKEN", VALUE[:4]], "", "unexpected extra argument"),
        (["delete", "NONE"], "", "There is no secret 'NONE'"),
    ],
)
async def test_an_error_is_printed_with_its_reason(
    line: CommandWithApi, words: list[str], stdin: str, says: str
) -> None:
    assert says in await line(*words, stdin=stdin, good=False)


async def test_a_rotation_prints_its_result(line: CommandWithApi, database: Database, tenant: Tenant) -> None:
    secrets = Secrets(database, Vault.of(FixedKeys([OLD])))
    for name in ("ONE", "TWO", "LOST"):
        await secrets.put(tenant.id, name, VALUE, by="person")
    await database.execute("UPDATE secrets SET key_id = 'gone' WHERE name = 'LOST'")
    said = await line("rotate")
    assert "2 rotated to new, 1 remain" in said
    assert "1 cannot be opened" in said
    assert "0 rotated to new, 1 remain" in await line("rotate")
