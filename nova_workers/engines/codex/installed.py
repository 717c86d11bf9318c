"""What an installed version of Codex can do, and the check that none of it is offered to a model.

Which tools of its own the program offers depends on its features and on the model: its catalog of models says for each
whether it gets a shell, a tool that applies patches, code that calls tools, or a search in place of the tools. So a
turn gets the program's own lists, with everything in them switched off that could be a tool, and no version is used
with a model before one request to a server on loopback has shown what the model would be offered.
"""

import asyncio
import hashlib
import os
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import orjson
import structlog

from nova_workers.base.child_process import Bounds, run_child
from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import JsonObject
from nova_workers.engines.programs.home import Home, make_home
from nova_workers.engines.programs.tool_server import SERVER

_log = structlog.get_logger(__name__)

HARMLESS: Final = frozenset({"list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource"})
"""Tools of the program that come with each MCP server, and that nothing removes. They ask the servers of its settings,
which are the bridge alone, and the bridge has no resources."""
_MODELS: Final = ["debug", "models", "--bundled"]
_COMMAND: Final = Bounds(timeout_s=60.0, head_bytes=16_000_000)
_MOST_BODY_BYTES: Final = 16_000_000
_NO_TOOLS: Final[JsonObject] = {
    "shell_type": "disabled",
    "apply_patch_tool_type": None,
    "supports_search_tool": False,
    "experimental_supported_tools": [],
    # The usual form of a request: the other one has its tools among the messages.
    "use_responses_lite": False,
    "node_repl_disabled": True,
    "include_skills_usage_instructions": False,
    "include_plugin_usage_instructions": False,
    "include_apps_usage_instructions": False,
    # Instructions are the agent's.
    "base_instructions": "",
    "model_messages": None,
    "availability_nux": None,
    "upgrade": None,
}
_LEFT_OUT: Final = frozenset(
    {"tool_mode", "multi_agent_version", "multi_agent_reasoning_effort", "default_service_tier", "model_specialty"}
)
_ANSWER: Final = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{}"


@dataclass(frozen=True, slots=True)
class Installed:
    """A version of the program.

    Attributes:
        version: As it names itself.
        digest: Of all that it reports: another version has another one.
        features: Names of those that can be switched.
        catalog: Its models, without tools.
        checked: Models that were seen to be offered no tool of the program.
    """

    version: str
    digest: str
    features: tuple[str, ...]
    catalog: JsonObject
    checked: set[str] = field(default_factory=set[str])


def stamp_of(program: str) -> tuple[str, int, int, int]:
    """Return a stamp that changes when the program is replaced. Blocks briefly.

    Raises:
        OSError: It is gone.
    """
    path = os.path.realpath(program)
    found = Path(path).stat()
    return path, found.st_ino, found.st_size, found.st_ctime_ns


async def read_installed(program: str, environment: Mapping[str, str]) -> Installed:
    """Ask the program for its version, features and models. It asks no provider.

    Raises:
        EngineFailure: It does not report them.
    """
    home = await asyncio.to_thread(make_home)
    try:
        await asyncio.to_thread((home.base / "codex").mkdir, 0o700)
        given = {**environment, **home.environment(), "CODEX_HOME": str(home.base / "codex")}
        version, features, models = [
            await _ask(program, words, given, home) for words in (["--version"], ["features", "list"], _MODELS)
        ]
    finally:
        await asyncio.to_thread(home.remove)
    digest = hashlib.sha256(b"\0".join((version, features, models))).hexdigest()
    try:
        catalog = {"models": [_without_tools(model) for model in orjson.loads(models)["models"]]}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise _unreadable(program, _MODELS, "its list of models has another form") from error
    names = tuple(_features(features.decode(errors="replace")))
    if not names or not catalog["models"]:
        raise _unreadable(program, ["features", "list"], "its list is empty")
    _log.info("codex.read", version=version.decode(errors="replace").strip(), features=len(names), digest=digest[:12])
    return Installed(version.decode(errors="replace").strip(), digest, names, catalog)


async def _ask(program: str, words: Sequence[str], environment: Mapping[str, str], home: Home) -> bytes:
    try:
        result = await run_child([program, *words], _COMMAND, env=environment, cwd=str(home.work))
    except OSError as error:
        raise _unreadable(program, words, str(error)) from error
    if result.exit_code != 0 or result.omitted_bytes:
        raise _unreadable(program, words, f"it ended with {result.exit_code}")
    return result.head


def _unreadable(program: str, words: Sequence[str], why: str) -> EngineFailure:
    return EngineFailure(
        f"`{program} {' '.join(words)}` does not report what this version of Codex has: {why}. Nothing shows that its "
        "own tools are off, so it is not used. Install a version of @openai/codex that this version of Nova Workers "
        "is tested with (docs/engines.md).",
        kind="unknown",
        retryable=False,
    )


def _features(listed: str) -> Iterator[str]:
    """Yield the features of a list with name, stage and default. Those that were removed switch nothing."""
    for line in listed.splitlines():
        words = line.split()
        if len(words) >= 3 and words[-1] in ("true", "false") and words[1] != "removed":
            yield words[0]


def _without_tools(model: JsonObject) -> JsonObject:
    return {name: value for name, value in model.items() if name not in _LEFT_OUT} | {
        name: value for name, value in _NO_TOOLS.items() if name in model
    }


def offered_tools(request: Mapping[str, Any]) -> list[str]:
    """Return the tools that a request offers its model, anywhere in it: names, or the types of those without one.

    Of a namespace, its name: what is in that of the bridge is the turn's.
    """
    offered = [*_names(request.get("tools"))]
    for item in request.get("input") or ():
        if isinstance(item, Mapping) and "tools" in item:
            offered += _names(item["tools"])
    return offered


def _names(tools: object) -> Iterator[str]:
    for tool in tools if isinstance(tools, list) else ():
        if isinstance(tool, Mapping):
            if tool.get("type") == "namespace" and tool.get("name") != f"mcp__{SERVER}":
                yield from _names(tool.get("tools"))
            else:
                yield str(tool.get("name") or tool.get("type"))


@dataclass(slots=True)
class Capture:
    """The first request that a server on loopback got."""

    url: str = ""
    request: JsonObject | None = None
    asked: asyncio.Event = field(default_factory=asyncio.Event)


@asynccontextmanager
async def capture() -> AsyncGenerator[Capture]:
    """Refuse each request, and keep the first one that has a body."""
    seen = Capture()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            _, _, rest = head.partition(b"content-length:")
            length = int(rest.split(b"\r\n", 1)[0]) if rest else 0
            body = await reader.readexactly(min(length, _MOST_BODY_BYTES))
            if body and seen.request is None:
                seen.request = orjson.loads(body)
                seen.asked.set()
            writer.write(_ANSWER)
            await writer.drain()
        except (asyncio.IncompleteReadError, ValueError, ConnectionError):
            # What is no request shows nothing, and then the check fails.
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        seen.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
        yield seen
