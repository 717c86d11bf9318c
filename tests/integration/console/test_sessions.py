"""Signing in and out of the console, and what its cookie is."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from pathlib import Path

import httpx2
import pytest

from api.auth import Caller
from api.guard.sign_ins import SignIns
from nova_workers.base.config import Settings
from nova_workers.console.app import build_console
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.console.conftest import Console
from tests.requirements import proves
from tests.support.harness.manual_clock import ManualClock
from tests.support.processes.preloaded import PreloadedProcess, stream_of
from tests.support.servers.asgi import serving
from tests.support.waiting import until


@proves("security.console")
async def test_a_page_asks_for_a_sign_in_and_leads_back(console: Console) -> None:
    async with console.browser() as browser:
        refused = await browser.get("/runs?status=running")
        assert (refused.status_code, refused.headers["location"]) == (303, "/login?next=/runs%3Fstatus%3Drunning")
        signed_in = await browser.post("/login", data={"key": console.api.tenant.key, "next": "/runs?status=running"})
        assert (signed_in.status_code, signed_in.headers["location"]) == (303, "/runs?status=running")
        assert (await browser.get("/runs?status=running")).status_code == 200
    [signed] = (await console.api.http.get("/v1/audit", params={"action": "key.signed_in"})).json()["items"]
    assert (signed["target_id"], signed["actor_name"]) == (console.api.tenant.key_id, "test")


@proves("security.console")
async def test_the_cookie_is_closed_to_scripts_and_other_sites_and_hides_the_key(console: Console) -> None:
    key = console.api.tenant.key
    async with console.browser() as browser:
        answer = await browser.post("/login", data={"key": key})
    cookie = answer.headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=strict" in cookie
    assert "path=/" in cookie
    assert "secure" not in cookie
    assert key.lower() not in cookie


@proves("security.console")
async def test_behind_https_the_cookie_is_sent_over_tls_only(settings: Settings, api: Api) -> None:
    public = settings.console.model_copy(update={"public_url": "https://nova.example.org"})
    app = build_console(settings.model_copy(update={"console": public}), api_url=api.url)
    async with serving(app, patient=True) as url, httpx2.AsyncClient(base_url=url, verify=False, timeout=60) as browser:
        own = {"Origin": "https://nova.example.org"}
        answer = await browser.post("/login", data={"key": api.tenant.key}, headers=own)
        assert "secure" in answer.headers["set-cookie"].lower()
        other = {"Origin": url}
        assert (await browser.post("/login", data={"key": api.tenant.key}, headers=other)).status_code == 403


async def test_a_key_that_the_api_does_not_know_is_refused_and_not_shown_again(console: Console) -> None:
    async with console.browser() as browser:
        answer = await browser.post("/login", data={"key": "nova_unknown"})
        assert answer.status_code == 403
        assert "The API key is not known" in answer.text
        assert "nova_unknown" not in answer.text
        assert "set-cookie" not in answer.headers
        answer = await browser.post("/login", data={"key": "nova_\N{HORIZONTAL ELLIPSIS}"})
        assert answer.status_code == 403
        assert "characters that no key has" in answer.text


@proves("security.console")
async def test_a_sign_in_leads_to_no_other_site(console: Console) -> None:
    async with console.browser() as browser:
        for elsewhere in ("//other.example", "https://other.example", "/\\other.example", "/\t/other.example", "//["):
            answer = await browser.post("/login", data={"key": console.api.tenant.key, "next": elsewhere})
            assert answer.headers["location"] == "/"


@proves("security.sign-out")
async def test_a_copy_of_the_cookie_is_worth_nothing_after_signing_out_at_any_console(
    settings: Settings, console: Console, browser: httpx2.AsyncClient
) -> None:
    copied = {"nova_console": browser.cookies["nova_console"]}
    async with console.signed_in(console.api.tenant.key) as another_session:
        async with (
            serving(build_console(settings, api_url=console.api.url), patient=True) as url,
            httpx2.AsyncClient(base_url=url, cookies=copied, timeout=60) as thief,
        ):
            assert (await thief.get("/runs")).status_code == 200
            await browser.post("/logout")
            refused = await thief.get("/runs")
            assert (refused.status_code, refused.headers["location"]) == (303, "/login?next=/runs")
        # The person's other sessions, and programs with the key, go on.
        assert (await another_session.get("/runs")).status_code == 200
        assert (await console.api.http.get("/v1/runs")).status_code == 200


@proves("security.sign-out")
async def test_a_session_ends_when_it_was_idle_for_too_long(
    console: Console, browser: httpx2.AsyncClient, database: Database
) -> None:
    assert (await browser.get("/runs")).status_code == 200
    [session] = await database.fetch("SELECT id FROM sign_ins")
    for age, status in (("11 hours", 200), ("13 hours", 303)):
        await database.execute("UPDATE sign_ins SET seen_at = now() - :age::text::interval", age=age)
        console.api.state.sign_ins.forget(console.api.tenant.key_id, session["id"])
        assert (await browser.get("/runs")).status_code == status


@proves("security.sign-out")
async def test_a_short_session_goes_on_while_it_is_used(
    console: Console, browser: httpx2.AsyncClient, database: Database
) -> None:
    await database.execute("UPDATE sign_ins SET idle_s = 60, seen_at = now() - interval '50 seconds'")
    [session] = await database.fetch("SELECT id FROM sign_ins")
    console.api.state.sign_ins.forget(console.api.tenant.key_id, session["id"])
    assert (await browser.get("/runs")).status_code == 200
    assert await database.fetchval("SELECT seen_at > now() - interval '40 seconds' FROM sign_ins")


@proves("security.sign-out")
async def test_a_short_session_is_noted_in_time_where_keys_are_cached_for_long(
    console: Console, browser: httpx2.AsyncClient, database: Database
) -> None:
    assert (await browser.get("/runs")).status_code == 200
    await database.execute("UPDATE sign_ins SET idle_s = 60, seen_at = now()")
    [session] = await database.fetch("SELECT id FROM sign_ins")
    tenant, clock = console.api.tenant, ManualClock()
    caller = Caller(tenant.key_id, "test", tenant.id, frozenset(), None, principal=tenant.key_id)
    sign_ins = SignIns(database, clock, cache_s=3_600.0)
    scope = {"type": "http", "headers": [(b"nova-session", session["id"].encode())]}
    await sign_ins.check(scope, caller)
    clock.advance(10)
    await database.execute("UPDATE sign_ins SET seen_at = now() - interval '10 seconds'")
    await sign_ins.check(scope, caller)
    assert await database.fetchval("SELECT seen_at > now() - interval '5 seconds' FROM sign_ins")


async def test_signing_out_ends_the_session(console: Console, browser: httpx2.AsyncClient) -> None:
    assert (await browser.get("/runs")).status_code == 200
    assert (await browser.post("/logout")).headers["location"] == "/login"
    assert (await browser.get("/runs")).status_code == 303


@proves("security.console")
async def test_a_revoked_key_leads_to_the_sign_in_page(console: Console, browser: httpx2.AsyncClient) -> None:
    assert (await console.api.http.delete(f"/v1/keys/{console.api.tenant.key_id}")).status_code == 204

    async def is_refused() -> bool:
        return (await browser.get("/runs")).status_code == 303

    # The API keeps what it knows of a key for a moment.
    await until(is_refused)
    async with console.browser() as again:
        assert (await again.get("/runs")).headers["location"].startswith("/login")


@pytest.mark.parametrize("declared", [True, False])
@proves("security.console")
async def test_a_sign_in_with_too_many_bytes_is_not_read(console: Console, declared: bool) -> None:
    body = b"key=" + b"x" * 20_000

    async def pieces() -> AsyncGenerator[bytes]:
        yield body

    async with console.browser() as browser:
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        answer = await browser.post("/login", content=body if declared else pieces(), headers=form)
        assert answer.status_code == 413
        assert "content-security-policy" in answer.headers


async def test_a_login_link_is_kept_while_the_api_is_down(console: Console, settings: Settings) -> None:
    token = console.state.links.make()
    app = build_console(settings, api_url="http://127.0.0.1:1", login_key=console.api.tenant.key)
    async with serving(app, patient=True) as url, httpx2.AsyncClient(base_url=url, verify=False, timeout=60) as lost:
        assert (await lost.get("/login", params={"token": token})).status_code == 503
    async with console.browser() as browser:
        assert (await browser.get("/login", params={"token": token})).status_code == 303


@pytest.mark.usefixtures("own_console")
@proves("security.console")
async def test_a_one_time_login_signs_in_once(console: Console) -> None:
    token = console.state.links.make()
    async with console.browser() as browser:
        first = await browser.get("/login", params={"token": token})
        assert (first.status_code, first.headers["location"]) == (303, "/")
        assert (await browser.get("/")).status_code == 200
    async with console.browser() as browser:
        again = await browser.get("/login", params={"token": token})
        assert again.status_code == 403
        assert "was used already" in again.text
        assert (await browser.get("/")).status_code == 303


async def test_another_process_of_the_same_home_accepts_the_cookie_and_no_used_login(
    console: Console, browser: httpx2.AsyncClient, settings: Settings
) -> None:
    token = console.state.links.make()
    assert console.state.links.use(token)
    app = build_console(settings, api_url=console.api.url, login_key=console.api.tenant.key)
    async with serving(app, patient=True) as url, httpx2.AsyncClient(base_url=url, verify=False, timeout=60) as other:
        assert (await other.get("/login", params={"token": token})).status_code == 403
        other.cookies.update(browser.cookies)
        assert (await other.get("/runs")).status_code == 200


@pytest.mark.usefixtures("own_console")
async def test_a_damaged_login_is_refused(console: Console) -> None:
    token = console.state.links.make()
    forged = ("A" if token[0] != "A" else "B") + token[1:]
    assert [console.state.links.use(bad) for bad in ("", "x", "not base64!", "é", forged)] == [False] * 5


async def test_the_secret_file_is_private(console: Console, settings: Settings) -> None:
    assert (settings.home / "console.key").stat().st_mode & 0o777 == 0o600


@proves("security.login-link")
async def test_a_command_prints_a_login_link_for_a_running_console_on_a_terminal_only(
    console: Console, settings: Settings, tmp_path: Path
) -> None:
    output, errors = tmp_path / "output", tmp_path / "errors"

    async def command(stdout: Path | int) -> int:
        streams = (os.devnull, stream_of(stdout), stream_of(errors))
        environment = {"NOVA_HOME": str(settings.home)}
        process = PreloadedProcess("nova_workers.console", [console.url], env=environment, streams=streams, cwd=Path())
        return await asyncio.to_thread(process.wait, 60.0)

    assert await command(output) == 1
    assert (output.read_text(), "on a terminal only" in errors.read_text()) == ("", True)
    reader, terminal = os.openpty()
    assert await command(terminal) == 0
    link = os.read(reader, 4096).decode().strip()
    os.close(reader)
    os.close(terminal)
    assert link.startswith(f"{console.url}/login?token=")
    async with console.browser() as browser:
        assert (await browser.get(link)).headers["location"] == "/"
