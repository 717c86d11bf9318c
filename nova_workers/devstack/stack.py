"""The fleet on one machine: its processes, their order and their addresses."""

from __future__ import annotations

import asyncio
import json
import os
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from nova_workers.base.config import Settings
from nova_workers.base.errors import Conflict
from nova_workers.devstack.commands import console_is_installed
from nova_workers.devstack.first_start import master_keys, prepare_database
from nova_workers.devstack.fleet_specs import (
    api_spec,
    beat_spec,
    console_spec,
    flower_spec,
    model_spec,
    telegram_spec,
    worker_metrics_port,
    worker_spec,
)
from nova_workers.devstack.home import FLOWER_PASSWORD_FILE, StackState, remove_state, write_state
from nova_workers.devstack.log_lines import LineSink
from nova_workers.devstack.preflight import check_start
from nova_workers.devstack.process import ProcessSpec
from nova_workers.devstack.servers.ports import Ports
from nova_workers.devstack.servers.postgres import EmbeddedPostgres
from nova_workers.devstack.servers.valkey import EmbeddedValkey
from nova_workers.devstack.supervisor import RestartPolicy, Supervisor

_FLOWER_PORT = 5555
_CONSOLE_LOGIN_FILE = "console.login"
"""Under the home: the console writes it when it starts."""
_LOOPBACK = "127.0.0.1"
_OLD_SERVER_S = 40.0
"""The servers of a killed stack shut down by themselves; Postgres may take this long."""


@dataclass(frozen=True)
class StackOptions:
    """Options of `nova up`.

    Attributes:
        port: The API's port; None takes the setting, 0 a free one.
        workers: Worker processes.
        policy: When an ended process is restarted.
    """

    port: int | None = None
    workers: int = 1
    policy: RestartPolicy | None = None


@dataclass(frozen=True)
class _Address:
    port: int
    url: str


@dataclass(frozen=True)
class _Servers:
    database_url: str
    owner_url: str | None
    """The URL for the owner of the tables in the embedded database."""
    redis_url: str


@dataclass(frozen=True)
class _LocalModel:
    """The local stand-in for a provider, if there is none. It serves before the first run."""

    spec: ProcessSpec
    url: str


class Stack:
    """Every process of the fleet, supervised. The caller holds the home's lock."""

    def __init__(self, settings: Settings, sink: LineSink, options: StackOptions | None = None) -> None:
        self._settings = settings
        self._sink = sink
        self._options = options or StackOptions()
        self._supervisor = Supervisor(sink, self._options.policy)
        self._ports = Ports()
        self._reloaded: list[ProcessSpec] = []
        """What reads the code of projects."""
        self._state: StackState | None = None
        self.key_file: Path | None = None

    @property
    def pids(self) -> dict[str, int]:
        """Ids of the running processes, by name."""
        return self._supervisor.pids

    async def start(self) -> StackState:
        """Start all processes; return when all of them serve.

        Raises:
            ConfigurationError: The machine or a setting prevents it; the message says what to do.
            Conflict: The API's port is taken.
            ProcessGaveUp: A process failed too often.
        """
        settings, count = self._settings, self._options.workers
        # Before anything is made: no folder, no table and no key of a start that fails.
        await check_start(settings)
        host, port = settings.api.host, self._api_port()
        api_url = f"http://{_reachable(host)}:{port}"
        flower_port = self._port_or_free("Flower", _LOOPBACK, _FLOWER_PORT)
        console = self._console_address()
        flower_url = f"http://{_LOOPBACK}:{flower_port}"
        model = self._local_model()
        postgres = None if settings.database_url else EmbeddedPostgres(settings.home)
        valkey = None if settings.redis_url else EmbeddedValkey(settings.home)
        servers = _Servers(
            database_url=postgres.login_url() if postgres else settings.require_database_url(),
            owner_url=postgres.url() if postgres else None,
            redis_url=valkey.url() if valkey else settings.require_redis_url(),
        )
        broker = {"NOVA_REDIS_URL": servers.redis_url, "PYTHONUNBUFFERED": "1"}
        await self._start_servers(
            valkey,
            postgres,
            [
                *([] if model is None else [model.spec]),
                beat_spec(settings, env=broker),
                flower_spec(settings, host=_LOOPBACK, port=flower_port, url=flower_url, env=broker),
            ],
        )
        self._sink.say("preparing the database")
        self.key_file = await prepare_database(settings, servers.database_url, servers.owner_url)
        key = self.key_file.read_text(encoding="utf-8").strip()
        telegram = telegram_spec(settings, url=api_url, key=key)
        trusted = {**broker, **_ledger_environment(settings, servers, model)}
        working = {**trusted, **({} if model is None else {"NOVA_MODEL__API_KEY": "local"})}
        workers = [worker_spec(settings, number=number, of=count, env=working) for number in range(1, count + 1)]
        api = api_spec(settings, host=host, port=port, url=api_url, env=trusted, with_console=console is not None)
        self._reloaded = [*workers, api]
        doors = [api, *self._console_specs(console, api_url)]
        channels = [] if telegram is None else [telegram]
        self._say_starting(
            ["worker" if count == 1 else f"{count} workers", *(spec.name for spec in (*doors, *channels))]
        )
        await self._supervisor.start(workers, doors, channels)
        await self._supervisor.all_serve()
        metrics_ports = [worker_metrics_port(settings, number) for number in range(1, count + 1)]
        state = StackState(
            pid=os.getpid(),
            started_at=datetime.now(UTC),
            api_url=api_url,
            flower_url=flower_url,
            console_url=None if console is None else console.url,
            metrics_urls=(
                f"{api_url}/metrics",
                *(f"http://{_LOOPBACK}:{number}/metrics" for number in metrics_ports if number),
            ),
            # For commands of this machine, which also migrate and back up.
            database_url=servers.owner_url or servers.database_url,
            redis_url=servers.redis_url,
            model="anthropic" if model is None else "local",
        )
        write_state(settings.home, state)
        self._state = state
        return state

    async def reload(self) -> None:
        """Replace API and workers, which read the code of projects when they start. Returns when the new ones serve.

        Turns that run finish within the workers' grace, or go on with the new ones.

        Raises:
            ProcessGaveUp: A process failed too often.
        """
        if self._state is None:
            raise RuntimeError("There is nothing to reload: the stack has not started.")
        self._sink.say("reloading: API and workers restart")
        await self._supervisor.replace(self._reloaded)
        self._state = self._state.model_copy(update={"reloads": self._state.reloads + 1})
        write_state(self._settings.home, self._state)
        self._sink.say("reloaded")

    def flower_password_hint(self) -> str:
        """Return how to see the password of Flower's user."""
        if self._settings.flower.password is not None:
            return "NOVA_FLOWER__PASSWORD"
        return f"cat {shlex.quote(str(self._settings.home / FLOWER_PASSWORD_FILE))}"

    def console_login(self) -> str | None:
        """Return the one-time login of the console that started last; None without one."""
        try:
            return (self._settings.home / _CONSOLE_LOGIN_FILE).read_text(encoding="ascii").strip() or None
        except OSError:
            return None

    @property
    def telegram_bots(self) -> int:
        """The number of Telegram bots that are served."""
        telegram = self._settings.telegram
        return (telegram.token is not None) + len(telegram.bots)

    @property
    def telegram_people(self) -> int:
        """The number of people who may write to a bot."""
        telegram = self._settings.telegram
        return len({*telegram.users, *(user for bot in telegram.bots.values() for user in bot.users)})

    async def failed(self) -> str:
        """Wait until a process fails too often, and return the error for the operator."""
        return (await self._supervisor.failed()).message

    async def stop(self) -> None:
        """Stop everything in order. Returns when nothing is left."""
        await self._supervisor.stop()
        self._ports.release()
        remove_state(self._settings.home)

    def kill(self) -> None:
        """Kill all processes at once; a running `stop` then ends soon. No accepted run is lost."""
        self._supervisor.kill()

    def _api_port(self) -> int:
        host = self._settings.api.host
        port = self._settings.api.port if self._options.port is None else self._options.port
        if port == 0:
            return self._ports.claim_any(host)
        if not self._ports.claim(host, port):
            raise Conflict(
                f"Port {port} on {host} is taken by another program. Stop that, or choose another port: "
                "`nova up --port 8701`, or `--port 0` for any that is free. NOVA_API__PORT makes it permanent.",
                port=port,
            )
        return port

    def _port_or_free(self, name: str, host: str, wanted: int) -> int:
        if wanted and self._ports.claim(host, wanted):
            return wanted
        port = self._ports.claim_any(host)
        if wanted:
            self._sink.say(f"port {wanted} is taken by another program; {name} gets {port}")
        return port

    def _console_address(self) -> _Address | None:
        """Return where the console listens; None if there is none."""
        settings = self._settings.console
        if not settings.enabled:
            return None
        if not console_is_installed():
            self._sink.say("the web console is not installed; `pip install nova-workers[console]` adds it")
            return None
        port = self._port_or_free("the console", settings.host, settings.port)
        return _Address(port, f"http://{_reachable(settings.host)}:{port}")

    def _console_specs(self, console: _Address | None, api_url: str) -> list[ProcessSpec]:
        if console is None or self.key_file is None:
            return []
        key = self.key_file.read_text(encoding="ascii").strip()
        return [console_spec(self._settings, port=console.port, url=console.url, api_url=api_url, api_key=key)]

    def _local_model(self) -> _LocalModel | None:
        if _has_model(self._settings):
            return None
        port = self._ports.claim_any(_LOOPBACK)
        url = f"http://{_LOOPBACK}:{port}"
        return _LocalModel(model_spec(host=_LOOPBACK, port=port, url=url), url)

    async def _start_servers(
        self, valkey: EmbeddedValkey | None, postgres: EmbeddedPostgres | None, without_tables: Sequence[ProcessSpec]
    ) -> None:
        """Start the servers that are not given by URL, and as soon as there is a broker, what needs no tables.

        Preparing the database leaves a core to them.
        """
        names = [*(["valkey"] if valkey else []), *(["postgres"] if postgres else [])]
        self._say_starting([*names, *(spec.name for spec in without_tables)])
        if valkey is not None:
            await self._start_server(valkey.spec())
        self._supervisor.begin(without_tables)
        if postgres is not None:
            # A new home: `initdb` takes half a second.
            await self._start_server(await asyncio.to_thread(postgres.spec))
            await postgres.create_database()
            await postgres.create_login()

    async def _start_server(self, spec: ProcessSpec) -> None:
        await self._wait_for_an_old_one(spec)
        # A group each: they stop one after the other.
        await self._supervisor.start([spec])

    def _say_starting(self, names: Sequence[str]) -> None:
        *others, last = names
        self._sink.say(f"starting {', '.join(others)} and {last}" if others else f"starting {last}")

    async def _wait_for_an_old_one(self, spec: ProcessSpec) -> None:
        """Wait until a server of a killed stack has exited: two on the same data would corrupt it."""
        deadline_s = time.monotonic() + _OLD_SERVER_S
        while spec.ready is not None and await spec.ready():
            if time.monotonic() > deadline_s:
                raise Conflict(
                    f"A {spec.name} serves the data under {str(self._settings.home)!r} already, and this fleet did not "
                    "start it. Stop it, or set NOVA_HOME to another place."
                )
            await asyncio.sleep(0.2)


def _ledger_environment(settings: Settings, servers: _Servers, model: _LocalModel | None) -> dict[str, str]:
    """Return the variables of the processes that use the ledger: API and workers."""
    env = {"NOVA_HOME": str(settings.home), "NOVA_DATABASE_URL": servers.database_url}
    if not settings.secrets.are_given:
        env["NOVA_SECRETS__KEYS"] = json.dumps(master_keys(settings.home))
    if model is not None:
        env["NOVA_MODEL__BASE_URL"] = model.url
    return env


def _has_model(settings: Settings) -> bool:
    if settings.default_engine == "openai":
        return True
    given = (settings.model.api_key, os.environ.get("ANTHROPIC_API_KEY"), os.environ.get("ANTHROPIC_AUTH_TOKEN"))
    return any(given)


def _reachable(host: str) -> str:
    """Return the host name under which a server on this machine is reachable."""
    if host in ("0.0.0.0", ""):  # noqa: S104 - compared, not bound
        return _LOOPBACK
    return "[::1]" if host == "::" else f"[{host}]" if ":" in host else host
