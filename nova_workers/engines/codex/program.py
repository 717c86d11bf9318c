"""Codex as a vendor's program: ``codex exec --json --ephemeral``.

All tools of its own are off: its features, and what its catalog of models has for each model. No version is used with
a model before a check has shown that (`nova_workers.engines.codex.checking`). ``--strict-config`` makes a version that
does not know one of the switches refuse to start. Its sandbox is ``read-only`` as well, and it asks for no approvals,
which nothing here could answer.
"""

import asyncio
from collections.abc import Iterable, Mapping
from importlib import import_module
from typing import Any

import orjson

from nova_workers.base.errors import EngineFailure
from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.codex.failures import VERDICTS
from nova_workers.engines.codex.installed import HARMLESS, Installed, read_installed, stamp_of
from nova_workers.engines.codex.settings import KEY_VARIABLE, settings_file
from nova_workers.engines.programs.frames import Announced, Failed, Finished, Forbidden, Frame, Reasoning, Text
from nova_workers.engines.programs.home import Home
from nova_workers.engines.programs.process import Launch
from nova_workers.engines.programs.tool_server import SERVER
from nova_workers.engines.programs.vendor import ProgramSettings, Request
from nova_workers.engines.strict_schemas import is_strict
from nova_workers.engines.tool_schemas import OPENAI_COMPATIBLE

_CHECKING = "nova_workers.engines.codex.checking"
"""Imported with the first check: it plays a turn, so it needs the libraries of tools."""
_MOST_CHECKED = 1_000

_HARMLESS_ITEMS = frozenset({"agent_message", "reasoning", "error"})
"""Items that no tool makes."""
_ALL_SERVERS = "codex"
"""What the program names as the server of a call of one of its own tools that asks all servers."""


class Codex:
    """Implements `nova_workers.engines.programs.vendor.Vendor`. Keeps only what it knows of installed versions."""

    name = "codex"
    command = "codex"
    package = "@openai/codex"
    key_variable = "OPENAI_API_KEY"
    limits = OPENAI_COMPATIBLE
    verdicts = VERDICTS
    keeps_order = False

    def __init__(self) -> None:
        self._installed: dict[str, tuple[object, Installed]] = {}
        """By path, with the stamp of the file."""

    async def prepare(self, settings: ProgramSettings, request: Request) -> None:
        """See `Vendor.prepare`. Costs 0.5 s for a version and a model that were not seen before."""
        try:
            stamp = await asyncio.to_thread(stamp_of, request.program)
        except OSError as error:
            raise EngineFailure(f"{request.program!r}: {error.strerror}", kind="unknown", retryable=True) from error
        known, installed = self._installed.get(request.program, (None, None))
        if installed is None or known != stamp:
            installed = await read_installed(request.program, settings.environment)
            self._installed[request.program] = (stamp, installed)
        if request.model not in installed.checked:
            await import_module(_CHECKING).check_offer(self, installed, settings, request)
            if len(installed.checked) < _MOST_CHECKED:
                installed.checked.add(request.model)

    def enforces(self, schema: Mapping[str, Any]) -> bool:
        """See `Vendor.enforces`."""
        return is_strict(schema)

    def launch(self, home: Home, settings: ProgramSettings, request: Request) -> Launch:
        """See `Vendor.launch`."""
        _, installed = self._installed[request.program]
        home.write("codex/config.toml", settings_file(home, settings, request, installed))
        home.write("instructions.md", request.instructions or "You are a helpful agent.")
        command = [request.program, "exec", "--json", "--ephemeral", "--strict-config"]
        command += ["--skip-git-repo-check", "--color", "never", "--sandbox", "read-only", "--cd", str(home.work)]
        for number, image in enumerate(request.prompt.images, 1):
            command.append(f"--image={home.write(f'image-{number}.{image.ending}', image.content)}")
        if request.output_schema is not None:
            command += ["--output-schema", str(home.write("schema.json", orjson.dumps(request.output_schema)))]
        key = settings.api_key or ""
        variables = {"CODEX_HOME": str(home.base / "codex"), KEY_VARIABLE: key}
        environment = {**settings.environment, **home.environment(), **variables}
        return Launch((*command, "-"), environment, str(home.work), request.prompt.text, (key,) if key else ())

    def frames(self, message: JsonObject) -> Iterable[Frame]:
        """See `Vendor.frames`."""
        match message:
            case {"type": "item.completed", "item": {"type": "agent_message", "text": str() as text}}:
                yield Text(text, whole=True)
            case {"type": "item.completed", "item": {"type": "reasoning", "text": str() as text}}:
                yield Reasoning(text)
            case {"type": "item.started", "item": {"type": "mcp_tool_call"} as item}:
                yield from self._call(item.get("server"), item.get("tool"))
            case {"type": str() as type, "item": item} if type.startswith("item."):
                kind = item.get("type") if isinstance(item, dict) else None
                if kind not in _HARMLESS_ITEMS and kind != "mcp_tool_call":
                    # What it is, this version of ours does not know: it may be a tool.
                    yield Forbidden(str(kind))
            case {"type": "turn.completed"}:
                usage = message.get("usage")
                yield Finished(_usage(usage) if isinstance(usage, dict) else None)
            case {"type": "turn.failed", "error": {"message": str() as text}}:
                yield Failed(text)
            case _:
                # Its start, notices, and `error`, which repeats the failure or reports a retry.
                return

    def _call(self, server: object, tool: object) -> Iterable[Frame]:
        if server == SERVER:
            yield Announced()
        elif server != _ALL_SERVERS or tool not in HARMLESS:
            yield Forbidden(f"mcp_tool_call of {server}: {tool}")


def _usage(counts: JsonObject) -> TokenUsage:
    def count(name: str) -> int:
        return bounds.count(counts.get(name))

    cached, written = count("cached_input_tokens"), count("cache_write_input_tokens")
    return TokenUsage(
        input_tokens=max(count("input_tokens") - cached - written, 0),
        output_tokens=count("output_tokens"),
        cache_read_tokens=cached,
        cache_write_tokens=written,
        reasoning_tokens=count("reasoning_output_tokens"),
    )
