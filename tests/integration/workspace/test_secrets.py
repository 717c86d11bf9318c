"""Secrets in the ledger: encrypted, bound to their row, and safe under concurrent rotations."""

from __future__ import annotations

import asyncio
import os

import pytest
from structlog.testing import capture_logs

from nova_workers.base.errors import Conflict, InvalidInput, LimitExceeded, NotFound
from nova_workers.domain.secrets.rules.service import MAX_SECRETS, Secrets
from nova_workers.domain.secrets.rules.vault import Vault
from nova_workers.ledger.database import Database
from tests.requirements import proves

OLD, NEW = ("old", os.urandom(32)), ("new", os.urandom(32))
VALUE = "correct horse battery"


@pytest.fixture(autouse=True)
async def tenants(database: Database) -> None:
    await database.execute("INSERT INTO tenants (id, name) VALUES ('ten_1', 'One'), ('ten_2', 'Two')")


@pytest.fixture
def secrets(database: Database) -> Secrets:
    return Secrets(database, Vault([OLD]))


async def test_a_value_is_in_the_database_as_a_ciphertext_only(database: Database, secrets: Secrets) -> None:
    view = await secrets.put("ten_1", "TOKEN", VALUE, by="person", description="for tests")
    assert (view.name, view.key_id, view.updated_by, view.description) == ("TOKEN", "old", "person", "for tests")
    row = await database.fetchval("SELECT secrets::text || encode(ciphertext, 'escape') FROM secrets")
    assert VALUE not in row
    assert await secrets.get("ten_1", "TOKEN") == VALUE


async def test_a_new_value_keeps_a_description_that_is_not_given(secrets: Secrets) -> None:
    await secrets.put("ten_1", "TOKEN", VALUE, by="person", description="for tests")
    view = await secrets.put("ten_1", "TOKEN", "another value", by="clerk")
    assert (view.description, view.updated_by) == ("for tests", "clerk")
    assert view.updated_at > view.created_at
    assert await secrets.get("ten_1", "TOKEN") == "another value"
    assert (await secrets.put("ten_1", "TOKEN", VALUE, by="person", description="")).description == ""


async def test_tenants_see_only_their_own_secrets(secrets: Secrets) -> None:
    await secrets.put("ten_1", "TOKEN", VALUE, by="person")
    assert await secrets.list("ten_2", after=None, limit=10) == ()
    with pytest.raises(NotFound, match="There is no secret 'TOKEN'"):
        await secrets.get("ten_2", "TOKEN")
    with pytest.raises(NotFound):
        await secrets.delete("ten_2", "TOKEN")
    await secrets.delete("ten_1", "TOKEN")
    with pytest.raises(NotFound):
        await secrets.delete("ten_1", "TOKEN")


@pytest.mark.parametrize(
    "move", ["SET tenant_id = 'ten_2'", "SET name = 'OTHER'", "SET ciphertext = ciphertext || 'x'::bytea"]
)
@proves("secrets.at-rest")
async def test_a_moved_or_changed_row_does_not_decrypt(database: Database, secrets: Secrets, move: str) -> None:
    await secrets.put("ten_1", "TOKEN", VALUE, by="person")
    await database.execute(f"UPDATE secrets {move}")
    row = await database.fetchrow("SELECT tenant_id, name FROM secrets")
    assert row is not None
    with pytest.raises(Conflict, match="its row was changed"):
        await secrets.get(*row)


async def test_exchanged_rows_do_not_decrypt(database: Database, secrets: Secrets) -> None:
    await secrets.put("ten_1", "LOW", VALUE, by="person")
    await secrets.put("ten_1", "HIGH", "another value", by="person")
    await database.execute("UPDATE secrets a SET ciphertext = b.ciphertext FROM secrets b WHERE a.name <> b.name")
    for name in ("LOW", "HIGH"):
        with pytest.raises(Conflict):
            await secrets.get("ten_1", name)


@pytest.mark.parametrize("name", ["token", "1A", "", "A-B", "A" * 65, "TOKEN\n", "Ä", "A\x00"])
async def test_a_name_has_one_form(secrets: Secrets, name: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        await secrets.put("ten_1", name, VALUE, by="person")
    assert refused.value.fields["field"] == "name"


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("abcde", "fewer than 6 characters"),
        ("  a    \n", "fewer than 6 characters"),
        ("x" * 65_537, "longer than 65536 bytes"),
        ("ü" * 32_769, "longer than 65536 bytes"),
        ("some\x00value", "U\\+0000"),
        ("some\ud800value", "half a character"),
        ("Bearer [secret:TOKEN]", "not the secret itself"),
    ],
)
async def test_an_invalid_value_is_refused_and_not_quoted(secrets: Secrets, value: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        await secrets.put("ten_1", "TOKEN", value, by="person")
    assert refused.value.fields["field"] == "value"
    assert value not in refused.value.message
    assert await secrets.list("ten_1", after=None, limit=1) == ()


async def test_the_longest_value_is_kept(secrets: Secrets) -> None:
    await secrets.put("ten_1", "TOKEN", "ü" * 32_768, by="person")
    assert await secrets.get("ten_1", "TOKEN") == "ü" * 32_768


async def test_a_tenant_has_a_limit(database: Database, secrets: Secrets) -> None:
    await database.execute(
        "INSERT INTO secrets (tenant_id, name, ciphertext, key_id, updated_by) "
        "SELECT 'ten_1', 'N' || n, '', 'old', 'person' FROM generate_series(1, :many::int) n",
        many=MAX_SECRETS,
    )
    with pytest.raises(LimitExceeded, match="500 secrets already"):
        await secrets.put("ten_1", "ONE_MORE", VALUE, by="person")
    await secrets.put("ten_1", "N7", VALUE, by="person")
    await secrets.put("ten_2", "ONE_MORE", VALUE, by="person")


async def test_without_a_master_key_nothing_is_written(database: Database) -> None:
    secrets = Secrets(database, Vault([]))
    with pytest.raises(Conflict, match="NOVA_SECRETS__KEYS"):
        await secrets.put("ten_1", "TOKEN", VALUE, by="person")
    with pytest.raises(Conflict, match="NOVA_SECRETS__KEYS"):
        await secrets.rotate()
    assert await database.fetchval("SELECT count(*) FROM secrets") == 0


async def _fill(secrets: Secrets, count: int) -> dict[tuple[str, str], str]:
    values = {(f"ten_{at % 2 + 1}", f"S{at:03}"): f"value number {at}" for at in range(count)}
    for (tenant_id, name), value in values.items():
        await secrets.put(tenant_id, name, value, by="person")
    return values


async def test_a_rotation_moves_every_secret_under_the_current_key(database: Database, secrets: Secrets) -> None:
    values = await _fill(secrets, 7)
    before = await database.fetch("SELECT name, updated_at, updated_by FROM secrets ORDER BY name")
    rotated = Secrets(database, Vault([NEW, OLD]))
    assert (await rotated.rotate()).model_dump() == {"key_id": "new", "rotated": 7, "remaining": 0, "unreadable": 0}
    assert (await rotated.rotate()).model_dump() == {"key_id": "new", "rotated": 0, "remaining": 0, "unreadable": 0}
    alone = Secrets(database, Vault([NEW]))
    assert {place: await alone.get(*place) for place in values} == values
    assert await database.fetch("SELECT name, updated_at, updated_by FROM secrets ORDER BY name") == before


@proves("secrets.rotation")
async def test_concurrent_rotations_and_writes_are_safe(database: Database, secrets: Secrets) -> None:
    values = await _fill(secrets, 60)
    rotators = [Secrets(database, Vault([NEW, OLD])) for _ in range(4)]
    results, _ = await asyncio.gather(
        asyncio.gather(*(each.rotate() for each in rotators)),
        secrets.put("ten_1", "S000", "written meanwhile", by="person"),
    )
    # The write used the old key; the next rotation moves it.
    left = await rotators[0].rotate()
    assert sum(result.rotated for result in results) + left.rotated in (60, 61)
    assert left.remaining == 0
    alone = Secrets(database, Vault([NEW]))
    values["ten_1", "S000"] = "written meanwhile"
    assert {place: await alone.get(*place) for place in values} == values


async def test_secrets_that_cannot_be_decrypted_are_counted_and_block_no_other(
    database: Database, secrets: Secrets
) -> None:
    await _fill(secrets, 3)
    await database.execute("UPDATE secrets SET key_id = 'lost' WHERE name = 'S001'")
    with capture_logs() as logs:
        result = await Secrets(database, Vault([NEW, OLD])).rotate()
    assert (result.rotated, result.remaining, result.unreadable) == (2, 1, 1)
    assert [line["secret_name"] for line in logs if line["event"] == "secret_not_rotated"] == ["S001"]


async def test_only_secrets_that_can_be_decrypted_are_redacted(database: Database, secrets: Secrets) -> None:
    await _fill(secrets, 4)
    await database.execute("UPDATE secrets SET key_id = 'lost' WHERE name = 'S000'")
    async with database.connection() as connection:
        assert await secrets.readable(connection, "ten_1") == {"S002": "value number 2"}
        assert await secrets.readable(connection, "ten_1", ["S003", "S002"]) == {"S002": "value number 2"}
