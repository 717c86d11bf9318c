"""A fleet, its console as a process, and Chromium; for the tests of this folder and for the documents' pictures."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Page, async_playwright, expect

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import ConsoleSettings
from nova_workers.base.errors import Unavailable
from nova_workers.client.client import NovaClient
from nova_workers.console.sessions import LoginLinks, read_secret
from nova_workers.devstack.commands import WORKER_APP, console_command
from tests.support.processes.fleet import Fleet, FleetProcess, free_port
from tests.support.servers.databases import own_database
from tests.support.waiting import until

UNFOLD = "document.querySelectorAll('details').forEach((part) => { part.name = ''; part.open = true; })"
"""A script that unfolds all of a page, also what is unfolded one at a time."""
_EXPECT_MS = 30_000
_NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
_FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    # A process for each page and one in reserve take a fifth of the CPU.
    *("--disable-site-isolation-trials", "--disable-features=SpareRendererForSitePerProcess,IsolateOrigins"),
)


def missing() -> str | None:
    """Return why no browser can be used here; None if one can."""
    return None if _chromium() else f"none of {', '.join(_NAMES)} is on PATH"


@dataclass(frozen=True)
class Site:
    """A console in front of a fleet.

    Attributes:
        fleet: A client with the key that `login` signs in with.
        api_url: The fleet's API.
        api_key: That key.
    """

    url: str
    fleet: NovaClient
    api_url: str
    api_key: str
    home: Path
    process: FleetProcess
    database_url: str

    def login(self) -> str:
        """Return a new one-time login."""
        links = LoginLinks(read_secret(ConsoleSettings(), self.home), self.home, SystemClock())
        return f"{self.url}/login?token={links.make()}"


@asynccontextmanager
async def site(
    postgres_url_admin: str, redis_url: str, home: Path, *, worker_app: str = WORKER_APP, preloaded: bool = True
) -> AsyncGenerator[Site]:
    """Run a fleet with one worker and beat on a database of its own, and its console.

    Args:
        postgres_url_admin: A database to make others from.
        redis_url: The broker.
        home: NOVA_HOME of all processes.
        worker_app: The worker's Celery app.
        preloaded: Whether processes begin with their modules imported (see `FleetProcess`).
    """
    async with own_database(postgres_url_admin) as database_url:
        env = {
            "NOVA_DATABASE_URL": database_url,
            "NOVA_REDIS_URL": redis_url,
            "NOVA_HOME": str(home),
            # Of secrets that are in a test's database only.
            "NOVA_SECRETS__KEYS": json.dumps([f"test:{base64.b64encode(bytes(32)).decode()}"]),
        }
        async with Fleet(
            env, workers=0, beat=True, concurrency=64, log_dir=home / "logs", preloaded=preloaded, embeddings=True
        ) as fleet:
            await fleet.start_worker(app=worker_app)
            async with console_at(fleet.api_url, fleet.api_key, home, preloaded=preloaded) as (url, process):
                yield Site(url, fleet.client, fleet.api_url, fleet.api_key, home, process, database_url)


@asynccontextmanager
async def console_at(
    api_url: str, api_key: str, home: Path, *, preloaded: bool, **more: str
) -> AsyncGenerator[tuple[str, FleetProcess]]:
    """Run a console before an API; `more` is further environment. Those of one home have the same sessions."""
    port = free_port()
    env = {
        "NOVA_HOME": str(home),
        "NOVA_API_URL": api_url,
        "NOVA_API_KEY": api_key,
        "NOVA_CONSOLE__PORT": str(port),
        **more,
    }
    command = console_command(host="127.0.0.1", port=port)
    process = FleetProcess("console", command, env, home / "logs" / "console.log", preloaded=preloaded)
    url = f"http://127.0.0.1:{port}"
    probe = NovaClient(url, None)

    async def serves() -> bool:
        assert process.exit_code is None, process.tail()
        try:
            await probe.healthz()
        except Unavailable:
            return False
        return True

    try:
        await until(serves, "the console")
        yield url, process
    finally:
        await probe.aclose()
        process.kill()
    # A stream that a browser left ends with all its tasks.
    assert "Task was destroyed" not in (home / "logs" / "console.log").read_text()


@asynccontextmanager
async def browser() -> AsyncGenerator[Browser]:
    """Run Chromium without a window."""
    path = _chromium()
    assert path is not None, missing()
    # By default 5 s, which a page may take where other tests use the processor.
    expect.set_options(timeout=_EXPECT_MS)
    async with async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=path, args=list(_FLAGS))
        try:
            yield chromium
        finally:
            await chromium.close()


async def new_context(chromium: Browser, **options: Any) -> BrowserContext:
    """Make a context with options of Playwright, in which nothing moves.

    The processor paints what moves, 60 times a second: a page that shows a run at work takes a seventh of a core.
    """
    return await chromium.new_context(reduced_motion="reduce", **options)


@asynccontextmanager
async def page_of(context: BrowserContext) -> AsyncGenerator[Page]:
    """Open a page of a context, and close both. A script error or what the page's policy refused fails the test."""
    page = await context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))

    def on_message(message: ConsoleMessage) -> None:
        if message.type == "error" and "Failed to load resource" not in message.text:
            errors.append(message.text)

    page.on("console", on_message)
    yield page
    await context.close()
    assert errors == []


async def signed_in(context: BrowserContext, site: Site) -> Page:
    """Open a page that a one-time login signed in."""
    page = await context.new_page()
    await page.goto(site.login())
    return page


async def sign_in_with(page: Page, key: str) -> None:
    """Sign in on a page of a context whose base is the console, with a key."""
    await page.goto("/login")
    await page.get_by_label("API key").fill(key)
    await page.get_by_role("button", name="Sign in").click()
    await page.wait_for_url("**/")


def _chromium() -> str | None:
    return next((path for name in _NAMES if (path := shutil.which(name))), None)
