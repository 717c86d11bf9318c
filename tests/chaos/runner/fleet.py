"""A whole fleet under test: its processes, its servers, and a proxy on every link between them.

Two APIs, two workers, two beats, Postgres, Valkey, and one process for what is outside (models, tools, embeddings,
webhooks). Each process has links of its own, so that a fault can hit one of them. What ends is started again, as by a
process supervisor, and each end is recorded.
"""

from __future__ import annotations

import asyncio
import base64
import json
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

import asyncpg
import httpx2

from nova_workers.base.vocabulary import DoorName
from nova_workers.devstack.commands import api_command, beat_command, console_command, worker_command
from tests.chaos.history import Recorder
from tests.chaos.runner.disk import OwnDisk
from tests.chaos.runner.statements import fetch_past_faults
from tests.support.processes.fleet import ALL_QUEUES, FleetProcess, add_api_key, free_port
from tests.support.processes.own_servers import OwnServers
from tests.support.servers.fault_proxy import FaultProxy

Role = Literal["api", "worker", "beat", "console", "outside"]

_SLOTS = 256
"""As `nova up` starts a worker."""
_RESTART_S = 1.0
_POLL_S = 0.1
_START_S = 120.0


@dataclass(frozen=True)
class Leases:
    """Times of the run protocol that decide how soon a lost worker is noticed.

    Attributes:
        bound_s: How long anything may wait once no fault is active: a run, an effect, a delivery, the end of a stream.
    """

    env: Mapping[str, str] = field(default_factory=dict[str, str])
    lease_s: float = 30.0
    bound_s: float = 45.0

    @classmethod
    def short(cls) -> Leases:
        """Return times a fifth as long, for a run of a minute."""
        return cls(
            {
                "NOVA_RUNS__LEASE_TTL_S": "6",
                "NOVA_RUNS__LEASE_RENEW_S": "2",
                "NOVA_RUNS__RERING_AFTER_S": "2",
                "NOVA_RUNS__RECONCILE_EVERY_S": "1",
                "NOVA_WORKER__DRAIN_GRACE_S": "3",
                "NOVA_WORKER__DRAIN_DEADLINE_S": "6",
            },
            lease_s=6.0,
            # A statement whose connection was lost takes 30 s, whatever the leases are.
            bound_s=38.0,
        )


class Member:
    """One process of the fleet, which is started again when it ended."""

    def __init__(self, role: Role, number: int, command: list[str], env: Mapping[str, str], log: Path) -> None:
        self.role: Role = role
        self.name = f"{role}-{number}"
        self.log = log
        self.extra: dict[str, str] = {}
        """Variables of its next start."""
        self.is_stopping = False
        """A fault asked it to end."""
        self.stays_down = False
        """A fault keeps it from being started again."""
        self._command = command
        self._env = env
        self.process = self._start()

    def _start(self) -> FleetProcess:
        self.is_stopping = False
        return FleetProcess(self.name, self._command, {**self._env, **self.extra}, self.log)

    def restart(self) -> None:
        """Start it again."""
        self.process = self._start()

    def kill(self) -> None:
        """Kill it and its children, without a message."""
        self.is_stopping = True
        self.process.kill()

    def terminate(self) -> None:
        """Ask it to end."""
        self.is_stopping = True
        self.process.terminate()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal, if it runs."""
        if not self.process.has_ended:
            self.process.send_signal(number)


class ChaosFleet:
    """The fleet. Use it as an async context manager.

    Attributes:
        members: Every process but the two servers.
        links: Proxies, by ``<process>><server>``, such as ``worker-0>postgres``; clients' are ``client>api-0``.
        servers: Postgres and Valkey.
        disk: Of Postgres alone, if it was asked for and this process may mount one.
        api_urls: Of the APIs, through the clients' links.
        api_key: With every scope.
        tenant_id: Of the key.
        guest_key: Of the second tenant, `guest_tenant_id`, with every scope.
        console_url: Of the console.
    """

    def __init__(self, home: Path, recorder: Recorder, leases: Leases, *, own_disk: bool = False) -> None:
        self.home = home
        self.leases = leases
        self.members: dict[str, Member] = {}
        self.links: dict[str, FaultProxy] = {}
        self.disk = OwnDisk.mounted(home / "sql") if own_disk else None
        self.servers = OwnServers(home)
        self.api_urls: list[str] = []
        self.api_key = self.tenant_id = self.guest_key = self.guest_tenant_id = self.console_url = ""
        self.outside_record = home / "outside.jsonl"
        self._recorder = recorder
        self._stack = AsyncExitStack()
        self._model_port, self._web_port = free_port(), free_port()
        self._is_closing = False

    async def __aenter__(self) -> Self:
        try:
            if self.disk is not None:
                self._stack.callback(self.disk.unmount)
            self._stack.push_async_callback(self.servers.stop)
            await self.servers.start()
            self.api_key, self.tenant_id = await add_api_key(self.servers.database_url)
            self.guest_key, self.guest_tenant_id = await add_api_key(self.servers.database_url)
            self._stack.callback(self._kill_all)
            await self._start_members()
            supervision = asyncio.create_task(self._supervise())
            self._stack.callback(supervision.cancel)
        except BaseException as error:
            await self.__aexit__(type(error), error, error.__traceback__)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_closing = True
        if error is not None:
            sys.stderr.write(self.tails() + "\n")
        await self._stack.aclose()

    @property
    def hook_url(self) -> str:
        """Where webhooks are received, through a link."""
        return f"{self.links['fleet>hook'].url}/hook"

    @property
    def tool_url(self) -> str:
        """The MCP server, through a link."""
        return f"{self.links['fleet>tool'].url}/mcp"

    def of_role(self, role: Role) -> list[Member]:
        """Return the processes of a role."""
        return [member for member in self.members.values() if member.role == role]

    def links_to(self, server: str) -> list[FaultProxy]:
        """Return the links to ``postgres``, ``redis``, ``model``, ``tool``, ``hook``, or an API."""
        return [link for name, link in self.links.items() if name.endswith(f">{server}")]

    def heal(self) -> None:
        """Remove every fault of links and processes."""
        for link in self.links.values():
            link.heal()
        for member in self.members.values():
            member.stays_down = False
            member.extra = {}
            member.send_signal(signal.SIGCONT)

    def tails(self) -> str:
        """Return the ends of all logs."""
        return "\n".join(member.process.tail(15) for member in self.members.values())

    async def dump(self, path: Path) -> None:
        """Write the whole database to a file, for people."""
        program = self.servers.programs / "pg_dump"
        command = [str(program), "--data-only", "--inserts", "--rows-per-insert=1", self.servers.database_url]
        with path.open("wb") as sink:
            process = await asyncio.create_subprocess_exec(*command, stdout=sink)
            await process.wait()

    async def sql(self, statement: str, *values: object) -> list[asyncpg.Record]:
        """Execute SQL past all links, again if another fault stops the server or ends the session."""
        return await fetch_past_faults(self.servers.database_url, statement, *values)

    async def post(self, path: str, body: Mapping[str, object]) -> dict[str, Any]:
        """Send a request to an API past all links, until it is answered with success."""
        async with asyncio.timeout(_START_S), httpx2.AsyncClient(timeout=60) as http:
            while True:
                port = next(iter(self._api_ports.values()))
                headers = {"Authorization": f"Bearer {self.api_key}"}
                with suppress(httpx2.TransportError):
                    answer = await http.post(f"http://127.0.0.1:{port}{path}", json=body, headers=headers)
                    if answer.is_success:
                        return answer.json()
                    if answer.is_client_error:
                        raise AssertionError(f"{path} was refused: {answer.text}")
                await asyncio.sleep(_POLL_S)

    async def _until_apis_accept(self) -> None:
        """Wait until the APIs accept connections. Workers and beats may take longer: runs wait for them."""
        deadline_s = time.monotonic() + _START_S
        for member in self.of_role("api"):
            while not await _accepts(self._api_port(member)):
                if time.monotonic() > deadline_s:
                    raise AssertionError(f"{member.name} did not start\n{member.process.tail()}")
                await asyncio.sleep(_POLL_S)

    async def _start_members(self) -> None:
        await self._link("fleet>tool", f"http://127.0.0.1:{self._web_port}", "http")
        await self._link("fleet>hook", f"http://127.0.0.1:{self._web_port}", "http")
        ports = ["--model-port", str(self._model_port), "--web-port", str(self._web_port)]
        module = [sys.executable, "-m", "tests.chaos.runner.outside", *ports, "--record", str(self.outside_record)]
        self._add("outside", 0, module, {})
        self._api_ports: dict[str, int] = {}
        for number in range(2):
            worker = worker_command(concurrency=_SLOTS, queues=ALL_QUEUES, name=f"worker-{number}", log_level="info")
            self._add("worker", number, worker, await self._env("worker", number))
            self._add("beat", number, beat_command(log_level="info"), await self._env("beat", number))
            port = self._api_ports[f"api-{number}"] = free_port()
            command = api_command(host="127.0.0.1", port=port, log_level="info")
            self._add("api", number, command, await self._env("api", number))
            link = await self._link(f"client>api-{number}", f"http://127.0.0.1:{port}", "http")
            self.api_urls.append(link.url)
        port = free_port()
        self.console_url = f"http://127.0.0.1:{port}"
        env = {"NOVA_HOME": str(self.home), "NOVA_API_URL": self.api_urls[0], "NOVA_CONSOLE__PORT": str(port)}
        self._add("console", 0, console_command(host="127.0.0.1", port=port), env)
        await self._until_apis_accept()

    async def _env(self, role: Role, number: int) -> dict[str, str]:
        name = f"{role}-{number}"
        servers = self.servers
        web = f"127.0.0.1:{self._web_port}"
        env = {
            "NOVA_HOME": str(self.home),
            "NOVA_REDIS_URL": (await self._link(f"{name}>redis", servers.redis_url, "redis")).url,
            "NOVA_DATABASE_URL": (await self._link(f"{name}>postgres", servers.database_url, "postgres")).url,
            "NOVA_SECRETS__KEYS": json.dumps([f"test:{base64.b64encode(bytes(32)).decode()}"]),
            "NOVA_TELEMETRY__LOG_FORMAT": "json",
            # For webhooks and tools on loopback.
            "NOVA_DELIVERY__WEBHOOK_ALLOW_HOSTS": json.dumps(["127.0.0.1"]),
            "NOVA_TOOLS__MCP_ALLOW_HOSTS": json.dumps(["127.0.0.1"]),
            # The recording client is one key from one address.
            "NOVA_API__REQUESTS_PER_S_PER_KEY": "2000",
            "NOVA_API__REQUESTS_PER_S_PER_ADDRESS": "2000",
            "NOVA_DOORS": json.dumps(get_args(DoorName)),
            **self.leases.env,
        }
        if role == "worker":
            model = await self._link(f"{name}>model", f"http://127.0.0.1:{self._model_port}", "http")
            env |= {
                "NOVA_MODEL__BASE_URL": model.url,
                "NOVA_MODEL__API_KEY": "local",
                "NOVA_WORKER__CONCURRENCY": str(_SLOTS),
                # Of the local model every worker would load a copy, on cores that it shares with the clients.
                "NOVA_EFFECTS__EMBEDDING_PROVIDER": "openai",
                "NOVA_EFFECTS__EMBEDDING_BASE_URL": f"http://{web}",
            }
        return env

    async def _link(self, name: str, url: str, kind: Literal["redis", "postgres", "http"]) -> FaultProxy:
        make = {"redis": FaultProxy.to_redis, "postgres": FaultProxy.to_postgres, "http": FaultProxy.to_http}[kind]
        self.links[name] = await self._stack.enter_async_context(make(url))
        return self.links[name]

    def _add(self, role: Role, number: int, command: list[str], env: Mapping[str, str]) -> None:
        member = Member(role, number, command, env, self.home / f"{role}-{number}.log")
        self.members[member.name] = member

    def _api_port(self, member: Member) -> int:
        return self._api_ports[member.name]

    async def _supervise(self) -> None:
        """Record each end of a process, and start it again, until the fleet is closed."""
        down_since: dict[str, float] = {}
        while not self._is_closing:
            for member in self.members.values():
                code = member.process.exit_code
                if code is None:
                    continue
                if member.name not in down_since:
                    down_since[member.name] = time.monotonic()
                    self._recorder.write("exit", process=member.name, code=code, asked=member.is_stopping)
                elif not member.stays_down and time.monotonic() - down_since[member.name] >= _RESTART_S:
                    del down_since[member.name]
                    member.restart()
            await asyncio.sleep(_POLL_S)

    def _kill_all(self) -> None:
        for member in self.members.values():
            member.send_signal(signal.SIGCONT)
            member.process.kill()


async def _accepts(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return False
    writer.close()
    return True
