"""The console's page of secrets: values go in, and never come out."""

from __future__ import annotations

import base64

import httpx2
import pytest

from nova_workers.base.config import Settings
from nova_workers.ledger.database import Database
from tests.integration.api.manual_worker import Tenant, make_tenant
from tests.integration.console.conftest import Console

MASTER_KEY = "first:" + base64.b64encode(bytes(range(32))).decode()
VALUE = "correct horse\nbattery staple"

pytestmark = pytest.mark.usefixtures("own_console")


@pytest.fixture
def settings(settings: Settings) -> Settings:
    """A fleet with a master key."""
    return Settings.model_validate({**settings.model_dump(), "secrets": {"keys": [MASTER_KEY]}})


async def test_a_secret_is_set_replaced_and_deleted_and_its_value_is_on_no_page(
    console: Console, browser: httpx2.AsyncClient
) -> None:
    assert "No secret yet" in (await browser.get("/secrets")).text
    form = {"name": "GITHUB_TOKEN", "value": VALUE, "description": "The bot's."}
    answer = await browser.post("/secrets", data=form)
    assert (answer.status_code, answer.headers["location"]) == (303, "/secrets")
    pages = [answer.text, (await browser.get("/secrets")).text, (await browser.get("/secrets?name=GITHUB_TOKEN")).text]
    assert "GITHUB_TOKEN is set." in pages[1]
    assert "The bot&#39;s." in pages[1]
    assert 'value="GITHUB_TOKEN"' in pages[2]
    assert [page for page in pages if "horse" in page] == []
    assert (
        await browser.post("/secrets", data=form | {"value": "another value", "description": ""})
    ).status_code == 303
    assert "The bot&#39;s." in (await browser.get("/secrets")).text
    assert (await browser.post("/secrets/GITHUB_TOKEN/delete")).status_code == 303
    assert "No secret yet" in (await browser.get("/secrets")).text


async def test_a_refused_secret_keeps_its_name_and_not_its_value(browser: httpx2.AsyncClient) -> None:
    short = await browser.post("/secrets", data={"name": "TOKEN", "value": "12345", "description": "Why."})
    assert short.status_code == 422
    assert "12345" not in short.text
    assert 'value="TOKEN"' in short.text
    assert 'value="Why."' in short.text
    named = await browser.post("/secrets", data={"name": "lower", "value": VALUE})
    assert named.status_code == 422
    assert "horse" not in named.text
    assert "capital letters" in named.text
    assert (await browser.post("/secrets", data={"name": "", "value": VALUE})).status_code == 422


async def test_the_value_is_offered_to_no_password_store_and_by_no_form_again(browser: httpx2.AsyncClient) -> None:
    page = (await browser.get("/secrets")).text
    field = page.partition('<textarea id="f-value"')[2].partition("</textarea>")[0]
    assert 'autocomplete="off"' in field
    assert field.endswith(">")


async def test_only_an_operator_rotates(console: Console, browser: httpx2.AsyncClient, database: Database) -> None:
    await browser.post("/secrets", data={"name": "TOKEN", "value": VALUE})
    assert "Rotate the master key?" in (await browser.get("/secrets")).text
    assert (await browser.post("/secrets/~rotate")).status_code == 303
    assert "0 remain under other keys." in (await browser.get("/secrets")).text
    limited = await make_tenant(database, ("secrets",), console.api.tenant.id)
    async with console.signed_in(limited.key) as narrow:
        assert "Rotate the master key?" not in (await narrow.get("/secrets")).text
        assert (await narrow.post("/secrets/~rotate")).status_code == 403


async def test_other_tenants_and_keys_without_the_scope_see_no_secrets(
    console: Console, browser: httpx2.AsyncClient, other_tenant: Tenant, database: Database
) -> None:
    await browser.post("/secrets", data={"name": "TOKEN", "value": VALUE})
    async with console.signed_in(other_tenant.key) as other:
        assert "No secret yet" in (await other.get("/secrets")).text
        assert (await other.post("/secrets/TOKEN/delete")).status_code == 404
    limited = await make_tenant(database, ("runs",), console.api.tenant.id)
    async with console.signed_in(limited.key) as narrow:
        assert "the scope <strong>secrets</strong>" in (await narrow.get("/secrets")).text
