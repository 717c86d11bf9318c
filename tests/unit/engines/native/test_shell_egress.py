"""What commands in a real sandbox of each kind reach of the network."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import get_args

import pytest

from nova_workers.base.errors import ConfigurationError
from nova_workers.base.outbound.egress import EgressProxy
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.contracts.agents import Egress, Enclosure
from nova_workers.contracts.engine import EngineOptions
from nova_workers.engines.native import NativeTools, ShellSettings
from nova_workers.shell_sandbox import SandboxKind, ShellSandbox, find_sandbox, make_private
from tests.requirements import proves
from tests.unit.engines.native.conftest import NativeToolCaller

_ADDRESSES = {"own.test": "127.0.0.1", "inside.test": "10.0.0.7", "metadata.test": "169.254.169.254"}
_ASK = "exec 3<> /dev/tcp/127.0.0.1/3128; printf '{request}' >&3; timeout 5 cat <&3; exec 3>&-"


@dataclass
class _Server:
    """A web server on loopback that counts requests.

    Attributes:
        heads: Of the requests that came, as they were.
    """

    port: int
    heads: list[bytes]


@pytest.fixture
async def server() -> AsyncIterator[_Server]:
    async with _serving() as server:
        yield server


@asynccontextmanager
async def _serving() -> AsyncGenerator[_Server]:
    heads: list[bytes] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            heads.append(await reader.readuntil(b"\r\n\r\n"))
            body = await reader.read(4) if b"POST" in heads[-1] else b""
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 12\r\n\r\nhello " + body.ljust(6, b"!"))
            await writer.drain()
            # What else comes on this connection would be counted.
            async with asyncio.timeout(0.2):
                heads.extend([rest] if (rest := await reader.read(4_096)) else [])
        except (asyncio.IncompleteReadError, ConnectionError, TimeoutError):
            pass
        finally:
            writer.close()

    running = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with running:
        yield _Server(running.sockets[0].getsockname()[1], heads)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder outside of what is hidden anyway, which any user may pass."""
    folder = Path(tempfile.mkdtemp(prefix="nova-test-", dir="/var/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


async def _resolve(host: str, _: int) -> Sequence[str]:
    if host not in _ADDRESSES:
        raise OSError("no such host")
    return (_ADDRESSES[host],)


def _found(kind: SandboxKind) -> ShellSandbox:
    try:
        return find_sandbox(network=True, choice=kind)
    except ConfigurationError as error:
        pytest.skip(error.message)


def _caller(sandbox: ShellSandbox, folder: Path, egress: Egress, server: _Server) -> NativeToolCaller:
    rules = OutboundRules(allow_hosts=(f"own.test:{server.port}",))
    sandbox = replace(sandbox, gate=EgressProxy(rules, resolver=_resolve))
    native = NativeTools(shell=ShellSettings(enclosing=sandbox))
    work = folder / "work"
    make_private(work, other_user=True)
    caller = NativeToolCaller(native, work)
    options = EngineOptions(str(work), enclosure=Enclosure((str(folder),), egress=egress))
    return caller.with_tools(native.for_turn(options, "unrestricted"))


def _ask(*lines: str) -> str:
    request = "\\r\\n".join((*lines, "", ""))
    return f"({_ASK.format(request=request)})"


@proves("sandbox.egress")
@pytest.mark.parametrize("kind", get_args(SandboxKind))
async def test_a_command_reaches_public_and_admitted_hosts_through_the_proxy_and_nothing_else(
    kind: SandboxKind, folder: Path, server: _Server
) -> None:
    sandbox = _found(kind)
    caller = _caller(sandbox, folder, "proxy", server)
    own = f"own.test:{server.port}"
    asked = {
        "page": _ask(f"GET http://{own}/a?b HTTP/1.1", f"Host: {own}", "Proxy-Authorization: x", "X-Kept: yes"),
        "sent": _ask(f"POST http://{own}/ HTTP/1.1", f"Host: {own}", "Content-Length: 4", "", "mineGET / HTTP/1.1"),
        "tunnel": _ask(f"CONNECT {own} HTTP/1.1", f"Host: {own}", "", "GET /through HTTP/1.1"),
        "inside": _ask("CONNECT inside.test:443 HTTP/1.1", "Host: inside.test:443"),
        "metadata": _ask("GET http://metadata.test/latest HTTP/1.1", "Host: metadata.test"),
        "address": _ask("CONNECT 127.0.0.1:8080 HTTP/1.1", "Host: 127.0.0.1:8080"),
        "port": _ask("CONNECT own.test:22 HTTP/1.1"),
        "nowhere": _ask("CONNECT nowhere.test:443 HTTP/1.1"),
        "host": _ask(f"GET http://{own}/ HTTP/1.1", "Host: metadata.test"),
        "two": _ask(f"GET http://{own}/ HTTP/1.1", f"Host: {own}", f"Host: {own}"),
        "chunks": _ask(f"POST http://{own}/ HTTP/1.1", f"Host: {own}", "Transfer-Encoding: chunked"),
        "odd": _ask("GET / HTTP/1.1", "Host: own.test"),
        "direct": f"(exec 3<> /dev/tcp/127.0.0.1/{server.port} && echo reached)",
        "outside": "(timeout 2 bash -c ': <> /dev/tcp/1.1.1.1/443' && echo reached)",
    }
    script = "; ".join(f"echo; echo '== {name}'; {command} 2> /dev/null" for name, command in asked.items())
    outcome = await caller.outcome("Bash", command=f"{script}; echo; echo '== proxy'; echo $https_proxy; false")
    text = outcome.content[0]["text"]
    said = {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in text.split("== ")[1:]}
    if kind == "landlock":
        assert [name for name, shown in said.items() if shown and name != "proxy"] == []
        assert "[no network: the sandbox of this worker (landlock) cannot have a network of its own" in text
        assert server.heads == []
        caller.native.close()
        return
    assert "reached" not in (said["direct"], said["outside"])
    assert said["proxy"].startswith("http://127.0.0.1:3128")
    assert said["page"].endswith("hello !!!!!!")
    assert said["sent"].endswith("hello mine!!")
    assert said["tunnel"].startswith("HTTP/1.1 200 Connection established")
    assert said["tunnel"].endswith("hello !!!!!!")
    refused = {
        "inside": (403, "'https://inside.test' is not fetched: it is not an address of the public internet"),
        "metadata": (403, "'http://metadata.test/…' is not fetched: it is not an address of the public"),
        "address": (403, "'https://127.0.0.1:8080' is not fetched: it is not an address of the public internet"),
        "port": (403, "port 22 is not one of 80, 443"),
        "nowhere": (502, "there is no host 'nowhere.test'"),
        "host": (400, "names another host than"),
        "two": (400, "names another host than"),
        "chunks": (411, "needs one Content-Length"),
        "odd": (400, "no address for a proxy"),
    }
    for name, (status, words) in refused.items():
        assert said[name].startswith(f"HTTP/1.1 {status} "), (name, said[name])
        assert words in said[name], name
    # The model reads why, also of a program that does not show it.
    assert "[network: 'https://inside.test' is not fetched: it is not an address of the public internet. The op" in text
    page, sent, through = server.heads
    assert page.startswith(b"GET /a?b HTTP/1.1\r\n")
    assert (b"X-Kept: yes" in page, b"Proxy-Auth" in page) == (True, False)
    assert sent.startswith(b"POST / HTTP/1.1\r\n"), "what followed its body was not sent"
    assert through == b"GET /through HTTP/1.1\r\n\r\n"
    caller.native.close()


@proves("sandbox.egress")
@pytest.mark.parametrize("kind", get_args(SandboxKind))
@pytest.mark.parametrize(("egress", "reached"), [("none", ""), ("all", "reached")])
async def test_a_tenant_can_have_no_network_or_that_of_the_machine(
    kind: SandboxKind, egress: Egress, reached: str, folder: Path, server: _Server
) -> None:
    caller = _caller(_found(kind), folder, egress, server)
    direct = f"(exec 3<> /dev/tcp/127.0.0.1/{server.port} && echo reached)"
    proxy = "(exec 3<> /dev/tcp/127.0.0.1/3128 && echo reached proxy)"
    assert await caller.call("Bash", command=f"({direct}; {proxy}; echo $HTTP_PROXY) 2> /dev/null; true") in (
        reached,
        "(no output)" if not reached else reached,
    )
    caller.native.close()


@proves("sandbox.egress")
async def test_connections_end_with_the_command(folder: Path, server: _Server) -> None:
    caller = _caller(_found("namespaces"), folder, "proxy", server)
    open_tunnel = f"exec 3<> /dev/tcp/127.0.0.1/3128; printf 'CONNECT own.test:{server.port} HTTP/1.1\\r\\n\\r\\n' >&3"
    assert await caller.call("Bash", command=f"{open_tunnel}; read -r line <&3; echo $line") == (
        "HTTP/1.1 200 Connection established\r"
    )
    tasks = {task.get_name() for task in asyncio.all_tasks() if not task.cancelling()}
    assert not [name for name in tasks if name.startswith("egress")]
    caller.native.close()
