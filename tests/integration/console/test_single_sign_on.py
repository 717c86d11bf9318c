"""Single sign-on at the console with a real provider: roles, sessions that are listed and ended, and the audit log."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from html import unescape
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import expect
from pydantic import SecretStr

from nova_workers.base.config import OidcSettings, RoleGrant, Settings
from nova_workers.base.http_server.connections import GuardedProtocol
from nova_workers.console.app import build_console
from nova_workers.console.single_sign_on import CALLBACK
from nova_workers.ledger.database import Database
from tests.browser.harness import browser as running_browser
from tests.browser.harness import missing, new_context, page_of
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves
from tests.support.servers.asgi import loopback_listener, serving
from tests.support.servers.oidc_server import CLIENT_ID, CLIENT_SECRET, oidc_server, sign_in_at, why_no_oidc_server

pytestmark = pytest.mark.skipif(why_no_oidc_server() is not None, reason=why_no_oidc_server() or "")

_PEOPLE = {
    "ann": {"name": "Ann", "email": "ann@example.org", "email_verified": True, "groups": ["nova-admins"]},
    "two": {"name": "Two", "email": "two@example.com", "email_verified": True, "groups": ["both"]},
    "vic": {"name": "Vic", "email": "vic@example.org", "email_verified": True},
    "eve": {"name": "Eve", "email": "eve@example.org", "email_verified": False},
}


@dataclass(frozen=True)
class Stage:
    """A console and an API that know a provider, with one tenant."""

    url: str
    api: Api
    other: Tenant

    @asynccontextmanager
    async def browser(self) -> AsyncGenerator[httpx2.AsyncClient]:
        """Give a browser without a session."""
        headers = {"Sec-Fetch-Site": "same-origin"}
        async with httpx2.AsyncClient(base_url=self.url, headers=headers, timeout=60) as browser:
            yield browser

    async def sign_in(self, browser: httpx2.AsyncClient, person: str, back: str = "/") -> httpx2.Response:
        """Sign a person in, and return the console's answer to the provider's redirect."""
        begun = await browser.get("/login/sso", params={"next": back})
        assert begun.status_code == 303, begun.text
        return await browser.get(await sign_in_at(begun.headers["location"], person))


@pytest.fixture(scope="module")
def port() -> int:
    """The port of the console: its address is registered at the provider."""
    with loopback_listener() as listener:
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def issuer(port: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A provider for the tests of the module."""
    directory = tmp_path_factory.mktemp("oidc")
    with oidc_server(directory, redirect_uri=f"http://127.0.0.1:{port}{CALLBACK}", people=_PEOPLE) as url:
        yield url


@pytest.fixture
async def stage(
    serve: Serve, settings: Settings, own_tenant: Tenant, own_other_tenant: Tenant, issuer: str, port: int
) -> AsyncGenerator[Stage]:
    """The console, whose API gives roles in the tenant of the test, and to one person in another one too."""
    oidc = OidcSettings(
        issuer=issuer,
        client_id=CLIENT_ID,
        client_secret=SecretStr(CLIENT_SECRET),
        scopes=("openid", "email", "profile", "groups"),
        name="Example",
        grants=(
            RoleGrant(role="admin", tenant=own_tenant.id, groups=("nova-admins",)),
            RoleGrant(role="viewer", tenant=own_tenant.id, emails=("@example.org",)),
            RoleGrant(role="viewer", tenant=own_tenant.id, groups=("both",)),
            RoleGrant(role="builder", tenant=own_other_tenant.id, groups=("both",)),
            RoleGrant(role="admin", tenant="ten_gone", groups=("both",)),
        ),
    )
    own = settings.model_copy(update={"oidc": oidc})
    api = await serve(own)
    async with serving(build_console(own, api_url=api.url), port=port, patient=True, http=GuardedProtocol) as url:
        yield Stage(url, api, own_other_tenant)


@proves("security.keys")
async def test_people_get_the_role_of_their_group_and_the_audit_log_names_them(stage: Stage) -> None:
    async with stage.browser() as ann, stage.browser() as vic:
        assert "Sign in with Example" in (await ann.get("/login")).text
        answer = await stage.sign_in(ann, "ann", "/agents/nova")
        assert (answer.status_code, answer.headers["location"]) == (303, "/agents/nova")
        assert (await ann.get("/keys")).status_code == 200
        await ann.post("/notes/new", data={"agent_id": "nova", "title": "A plan", "content": "Now."})
        assert (await stage.sign_in(vic, "vic")).status_code == 303
        assert (await vic.get("/runs")).status_code == 200
        assert (await vic.get("/keys")).status_code == 403
        # Keys of sessions are no keys of the tenant.
        names = [key["name"] for key in (await stage.api.http.get("/v1/keys")).json()["items"]]
        assert "ann@example.org" not in names
    records = (await stage.api.http.get("/v1/audit", params={"limit": 200})).json()["items"]
    by_person = {(r["action"], r["actor_name"]) for r in records if r["actor_kind"] == "person"}
    assert {("person.signed_in", "ann@example.org"), ("person.signed_in", "vic@example.org")} <= by_person
    assert ("note.created", "ann@example.org") in by_person
    assert len({r["actor_id"] for r in records if r["actor_name"] == "ann@example.org"}) == 1


async def test_sessions_are_listed_and_ended_by_an_admin_and_signing_out_ends_the_key(
    stage: Stage, database: Database
) -> None:
    async with stage.browser() as ann, stage.browser() as vic:
        await stage.sign_in(ann, "ann")
        await stage.sign_in(vic, "vic")
        page = (await ann.get("/sessions")).text
        assert "this session" in page
        listed = (await stage.api.http.get("/v1/sign-ins")).json()["items"]
        assert [(session["name"], session["role"]) for session in listed] == [
            ("vic@example.org", "viewer"),
            ("ann@example.org", "admin"),
        ]
        assert (await vic.get("/sessions")).status_code == 403
        await ann.post(f"/sessions/{listed[0]['id']}/end")
        again = await vic.get("/runs")
        assert (again.status_code, again.headers["location"].startswith("/login")) == (303, True)
        await ann.post("/logout")
        assert (await stage.api.http.get("/v1/sign-ins")).json()["items"] == []
    assert await database.fetchval("SELECT count(*) FROM api_keys WHERE person_id IS NOT NULL") == 0


async def test_a_person_without_a_role_or_with_an_unverified_address_is_refused(stage: Stage) -> None:
    async with stage.browser() as eve:
        answer = await stage.sign_in(eve, "eve")
        assert answer.status_code == 403
        assert "has no role here" in answer.text
        assert (await eve.get("/runs")).headers["location"].startswith("/login")


@proves("security.keys")
async def test_a_person_with_roles_in_several_tenants_chooses_the_one_of_the_session(stage: Stage) -> None:
    async with stage.browser() as two:
        answer = await stage.sign_in(two, "two", "/agents/nova")
        assert (answer.status_code, (await two.get("/runs")).status_code) == (200, 303)
        links = [unescape(link) for link in re.findall(r'href="(/login/sso[^"]+)"', answer.text)]
        assert ["viewer" in answer.text, "builder" in answer.text, "ten_gone" in answer.text] == [True, True, False]
        [link] = [link for link in links if stage.other.id in link]
        begun = await two.get(link)
        chosen = await two.get(await sign_in_at(begun.headers["location"], "two"))
        assert (chosen.status_code, chosen.headers["location"]) == (303, "/agents/nova")
        async with stage.api.client(stage.other.key) as client:
            [session] = (await client.get("/v1/sign-ins")).json()["items"]
        assert (session["name"], session["role"]) == ("two@example.com", "builder")
        assert (await stage.api.http.get("/v1/sign-ins")).json()["items"] == []
        # Of a tenant in which no rule gives a role, also by a changed address.
        begun = await two.get("/login/sso", params={"tenant": "ten_default"})
        refused = await two.get(await sign_in_at(begun.headers["location"], "two"))
        assert refused.status_code == 403
        assert "gives you a role in the tenant" in refused.text


@proves("security.keys")
async def test_an_answer_to_another_attempt_or_browser_is_refused(stage: Stage) -> None:
    async with stage.browser() as ann, stage.browser() as other:
        begun = await ann.get("/login/sso")
        query = parse_qs(urlsplit(begun.headers["location"]).query)
        assert query["code_challenge_method"] == ["S256"]
        answered = await sign_in_at(begun.headers["location"], "ann")
        # Of another browser: the attacker's own answer signs no one else in.
        assert (await other.get(answered)).status_code == 403
        await other.get("/login/sso")
        assert (await other.get(answered)).status_code == 403
        for part, wrong in (("iss=", "iss=https%3A%2F%2Felsewhere"), ("code=", "code=x"), ("state=", "state=x")):
            begun = await ann.get("/login/sso")
            changed = (await sign_in_at(begun.headers["location"], "ann")).replace(part, wrong)
            assert (await ann.get(changed)).status_code == 403, part
        begun = await ann.get("/login/sso")
        answered = await sign_in_at(begun.headers["location"], "ann")
        assert [(await ann.get(answered)).status_code for _ in range(2)] == [303, 403]
        refused = await ann.get(f"{CALLBACK}?state=x&error=access_denied")
        assert refused.status_code == 403
        assert "set-cookie" in refused.headers


async def test_a_sign_in_leads_to_no_other_site(stage: Stage) -> None:
    async with stage.browser() as ann:
        answer = await stage.sign_in(ann, "ann", "//attacker.example")
        assert answer.headers["location"] == "/"


async def test_a_fleet_without_single_sign_on_has_no_such_sign_in(serve: Serve, settings: Settings) -> None:
    api = await serve(settings)
    async with api.client(None) as client:
        answer = await client.post("/sso/sign-ins", json={"id_token": "any"})
    assert (answer.status_code, answer.json()["context"]["kind"]) == (404, "single_sign_on")


@pytest.mark.skipif(missing() is not None, reason=missing() or "")
async def test_a_person_signs_in_by_the_button_and_ends_the_session_of_another(stage: Stage) -> None:
    async with stage.browser() as vic, running_browser() as chromium:
        await stage.sign_in(vic, "vic")
        async with page_of(await new_context(chromium, base_url=stage.url)) as page:
            await page.goto("/sessions")
            await page.get_by_role("link", name="Sign in with Example").click()
            # The provider's own pages: who one is, and what the console may know.
            await page.locator("[name=login]").fill("ann")
            await page.locator("[name=password]").fill("any")
            await page.locator("[type=submit]").click()
            await page.locator("[type=submit]").click()
            await page.wait_for_url("**/sessions")
            own = page.get_by_role("row", name="ann@example.org")
            await expect(own.get_by_text("this session")).to_be_visible()
            found = await Axe().run(page, options={"resultTypes": ["violations"]})
            assert [one["id"] for one in found.response["violations"] if one["impact"] in {"serious", "critical"}] == []
            row = page.get_by_role("row", name="vic@example.org")
            await row.get_by_role("button", name="End").first.click()
            await page.get_by_role("dialog").get_by_role("button", name="End").click()
            await expect(row).to_have_count(0)
            assert (await vic.get("/runs")).headers["location"].startswith("/login")
            await page.get_by_role("button", name="Sign out").click()
            await expect(page.get_by_role("link", name="Sign in with Example")).to_be_visible()
