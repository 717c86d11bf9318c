"""`nova login` and `nova logout` with a real provider's device flow, at a real API."""

from __future__ import annotations

import asyncio
import io
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from nova_workers.base.config import OidcSettings, RoleGrant, Settings
from nova_workers.base.errors import ConfigurationError, Forbidden, InvalidInput
from nova_workers.cli.login.commands import Choose, sign_in, sign_out
from nova_workers.cli.stored_sessions import read_session
from nova_workers.cli.terminal.output import Output
from nova_workers.contracts.http.keys import TenantRole
from tests.integration.api.conftest import Api, Serve
from tests.integration.api.manual_worker import Tenant
from tests.requirements import proves
from tests.support.processes.command_line import Nova
from tests.support.servers.oidc_server import (
    CLIENT_ID,
    DEVICE_CLIENT_ID,
    confirm_code,
    oidc_server,
    why_no_oidc_server,
)

pytestmark = pytest.mark.skipif(why_no_oidc_server() is not None, reason=why_no_oidc_server() or "")

_PEOPLE = {
    "ann": {"name": "Ann", "email": "ann@example.org", "email_verified": True, "groups": ["nova-admins"]},
    "two": {"name": "Two", "email": "two@example.com", "email_verified": True, "groups": ["both"]},
    "eve": {"name": "Eve", "email": "eve@example.net", "email_verified": True},
}


class Person:
    """Runs `nova login` in this process, and confirms its code at the provider while the command waits."""

    def __init__(self, api: Api) -> None:
        self.api = api
        self.notes = io.StringIO()

    async def log_in(
        self, name: str, *, refuse: bool = False, tenant: str | None = None, choose: Choose | None = None
    ) -> None:
        """Sign in at the API."""

        async def confirm(_: float) -> None:
            [address] = [word for word in self.notes.getvalue().split() if "user_code=" in word]
            await confirm_code(address, name, refuse=refuse)

        self.notes = io.StringIO()
        await sign_in(self.api.url, self.output(), tenant_id=tenant, choose=choose, sleep=confirm)

    def output(self) -> Output:
        """Return where the command writes."""
        return Output(json_mode=True, stdout=io.StringIO(), stderr=self.notes)

    async def run(self, *arguments: str) -> str:
        """Run a command without a key, and return what it prints."""
        done = await asyncio.to_thread(Nova({"NOVA_API_URL": self.api.url, "NO_COLOR": "1"}), *arguments)
        return done.out + done.err


@pytest.fixture(scope="module")
def issuer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A provider for the tests of the module."""
    directory = tmp_path_factory.mktemp("oidc")
    with oidc_server(directory, redirect_uri="http://127.0.0.1/unused", people=_PEOPLE) as url:
        yield url


@pytest.fixture
def oidc(issuer: str, own_tenant: Tenant, own_other_tenant: Tenant) -> OidcSettings:
    """Settings that give one group a role in the tenant of the test, and another one also in a second tenant."""
    return OidcSettings(
        issuer=issuer,
        client_id=CLIENT_ID,
        device_client_id=DEVICE_CLIENT_ID,
        scopes=("openid", "email", "profile", "groups"),
        name="Example",
        grants=(
            RoleGrant(role="admin", tenant=own_tenant.id, groups=("nova-admins", "both")),
            RoleGrant(role="viewer", tenant=own_other_tenant.id, groups=("both",)),
        ),
    )


@pytest.fixture
async def person(
    serve: Serve, settings: Settings, oidc: OidcSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Person:
    """A person with a home of its own, before an API that knows the provider."""
    for name, folder in (("XDG_CONFIG_HOME", "config"), ("NOVA_HOME", "home")):
        monkeypatch.setenv(name, str(tmp_path / folder))
    monkeypatch.delenv("NOVA_API_KEY", raising=False)
    return Person(await serve(settings.model_copy(update={"oidc": oidc})))


@proves("security.keys")
async def test_a_person_signs_in_on_the_command_line_acts_as_itself_and_signs_out(person: Person) -> None:
    await person.log_in("ann")
    assert "To sign in at Example, open http" in person.notes.getvalue()
    session = read_session(person.api.url)
    assert session is not None
    assert session.api_key not in person.notes.getvalue()
    assert "ann@example.org" in await person.run("keys", "current")
    await person.run("notes", "create", "nova", "A plan", "--content", "Now.")
    records = (await person.api.http.get("/v1/audit", params={"limit": 50})).json()["items"]
    acts = {record["action"] for record in records if record["actor_name"] == "ann@example.org"}
    assert {"person.signed_in", "note.created"} <= acts
    # Again: the former session ends.
    await person.log_in("ann")
    [listed] = (await person.api.http.get("/v1/sign-ins")).json()["items"]
    assert listed["id"] != session.session_id
    await sign_out(person.api.url, person.output())
    assert read_session(person.api.url) is None
    assert (await person.api.http.get("/v1/sign-ins")).json()["items"] == []
    assert "run `nova login`" in await person.run("keys", "current")
    await sign_out(person.api.url, person.output())


async def test_a_session_that_an_admin_ended_is_named_with_what_to_do(person: Person) -> None:
    await person.log_in("ann")
    [listed] = (await person.api.http.get("/v1/sign-ins")).json()["items"]
    assert (await person.api.http.delete(f"/v1/sign-ins/{listed['id']}")).status_code == 204
    assert "the session of ann@example.org by `nova login`; run it again" in await person.run("keys", "current")
    # What has ended is signed out of all the same.
    await sign_out(person.api.url, person.output())
    assert read_session(person.api.url) is None


async def test_a_person_who_refuses_or_has_no_role_gets_no_session(person: Person) -> None:
    with pytest.raises(Forbidden, match="refused at the provider"):
        await person.log_in("ann", refuse=True)
    with pytest.raises(Forbidden, match="has no role here"):
        await person.log_in("eve")
    assert read_session(person.api.url) is None


async def test_a_person_with_roles_in_several_tenants_names_the_one_of_the_session(
    person: Person, own_tenant: Tenant, own_other_tenant: Tenant
) -> None:
    with pytest.raises(InvalidInput, match=f"--tenant with one of {own_tenant.id}.*admin.*{own_other_tenant.id}"):
        await person.log_in("two")
    with pytest.raises(Forbidden, match="No rule gives you a role in the tenant 'ten_default'"):
        await person.log_in("two", tenant="ten_default")
    assert read_session(person.api.url) is None

    def first(tenants: Sequence[TenantRole]) -> str:
        return tenants[0].tenant_id

    for tenant, choose in ((own_other_tenant.id, None), (None, first)):
        await person.log_in("two", tenant=tenant, choose=choose)
        session = read_session(person.api.url)
        assert session is not None
        assert session.tenant_id == (tenant or own_tenant.id)


async def test_ctrl_c_while_the_command_waits_begins_no_session(person: Person) -> None:
    async def interrupt(_: float) -> None:
        raise asyncio.CancelledError  # as `asyncio.run` does

    with pytest.raises(asyncio.CancelledError):
        await sign_in(person.api.url, person.output(), sleep=interrupt)
    assert "Interrupted: no session was begun" in person.notes.getvalue()
    assert read_session(person.api.url) is None


async def test_a_fleet_without_a_client_for_command_lines_says_what_its_operator_sets(
    serve: Serve, settings: Settings, oidc: OidcSettings
) -> None:
    bare = await serve(settings)
    with pytest.raises(ConfigurationError, match="has no single sign-on"):
        await sign_in(bare.url, Person(bare).output())
    web = await serve(settings.model_copy(update={"oidc": oidc.model_copy(update={"device_client_id": None})}))
    with pytest.raises(ConfigurationError, match="NOVA_OIDC__DEVICE_CLIENT_ID"):
        await sign_in(web.url, Person(web).output())
