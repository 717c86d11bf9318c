"""`nova doctor`: check the installation, and say how to fix each fault."""

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import typer
from pydantic import SecretStr

from nova_workers.base.config import Settings, load_settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.cli.command import ApiKeyOption, ApiUrlOption
from nova_workers.cli.operations.api_checks import check_api, check_console
from nova_workers.cli.operations.checks import check_broker
from nova_workers.cli.operations.database_checks import check_database
from nova_workers.cli.operations.findings import Finding, isolated, report
from nova_workers.cli.operations.machine_checks import check_disks, check_embedded, check_variables
from nova_workers.cli.operations.provider_checks import check_providers
from nova_workers.cli.operations.sandbox_checks import check_sandbox_here
from nova_workers.cli.target import Servers, Target, find_servers, find_target, read_state
from nova_workers.cli.terminal.output import JsonOption, Output
from nova_workers.client.client import NovaClient

T = TypeVar("T")

_DISK_S = 10.0
_SERVER_S = 60.0
"""The time for all checks of one server; each has a limit of its own."""

app = typer.Typer(add_completion=False, rich_markup_mode=None)


@app.command("doctor")
def doctor(*, json_mode: JsonOption = False, api_url: ApiUrlOption = None, api_key: ApiKeyOption = None) -> None:
    """Check everything, and say how to fix it. Exits with 1 when something fails."""
    report(Output(json_mode=json_mode), asyncio.run(examine(api_url=api_url, api_key=api_key)))


async def examine(*, api_url: str | None, api_key: str | None) -> list[Finding]:
    """Return the findings of all checks. Never raises: what prevents a check is a finding."""
    try:
        settings = load_settings()
    except ConfigurationError as error:
        fix = "correct these variables; nothing else can be checked without them"
        return [*check_variables(os.environ), Finding("settings", "fail", error.message, fix)]
    home = _Home(settings, api_url=api_url, api_key=api_key)
    servers = home.servers

    async def machine() -> Sequence[Finding]:
        return [*check_variables(os.environ), *check_embedded(servers)]

    async def disks() -> Sequence[Finding]:
        return await _in_daemon_thread(lambda: check_disks(settings))

    async def api() -> Sequence[Finding]:
        if home.target is None:
            return []
        async with NovaClient(home.target.url, home.target.api_key) as client:
            return await check_api(client, home.target)

    looked = await asyncio.gather(
        isolated("machine", machine),
        isolated("disks", disks, longest_s=_DISK_S),
        isolated("database", lambda: check_database(servers.database_url), longest_s=_SERVER_S),
        isolated("broker", lambda: check_broker(servers.redis_url), longest_s=_SERVER_S),
        isolated("api", api, longest_s=_SERVER_S),
        isolated("providers", lambda: check_providers(servers.redis_url, home.target, settings.default_engine)),
        isolated("console", lambda: check_console(home.console_url)),
        isolated("sandbox here", lambda: check_sandbox_here(settings)),
    )
    return [*home.faults, *(finding for part in looked for finding in part)]


async def _in_daemon_thread(check: Callable[[], T]) -> T:
    """Run a check in a thread that the command does not wait for at its end: a network drive may hang for ever."""
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(set_result: Callable[[Any], None], value: object) -> None:
        if not result.done():
            set_result(value)

    def run() -> None:
        try:
            found = check()
        except Exception as error:
            report_back(result.set_exception, error)
        else:
            report_back(result.set_result, found)

    def report_back(set_result: Callable[[Any], None], value: object) -> None:
        with suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(settle, set_result, value)

    threading.Thread(target=run, name="disks", daemon=True).start()
    return await result


class _Home:
    """What the files of NOVA_HOME say; a damaged one is a finding, and the rest counts without it."""

    def __init__(self, settings: Settings, *, api_url: str | None, api_key: str | None) -> None:
        self.faults: list[Finding] = []
        state = self._read(lambda: read_state(settings.home))
        self.console_url = None if state is None else state.get("console_url")
        self.target: Target | None = self._read(lambda: find_target(settings.home, api_url=api_url, api_key=api_key))
        found = self._read(lambda: find_servers(settings))
        self.servers = found or Servers(_plain(settings.database_url), _plain(settings.redis_url))

    def _read(self, read: Callable[[], T]) -> T | None:
        try:
            return read()
        except ConfigurationError as error:
            finding = Finding("home", "fail", error.message, "what needs this file is not checked")
            # The same file is read for several things.
            if finding not in self.faults:
                self.faults.append(finding)
            return None


def _plain(secret: SecretStr | None) -> str | None:
    return None if secret is None else secret.get_secret_value()
