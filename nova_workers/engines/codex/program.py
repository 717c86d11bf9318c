"""Codex as a vendor's program: ``codex exec --json --ephemeral``.

All tools of its own are switched off. ``--strict-config`` makes a version that does not know one of the switches refuse
to start, so that no version runs with more than the bridge. Its sandbox is ``read-only`` as well, and it asks for no
approvals, which nothing here could answer.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import orjson

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.codex.failures import verdict
from nova_workers.engines.codex.settings import KEY_VARIABLE, settings_file
from nova_workers.engines.programs.frames import Announced, Failed, Finished, Forbidden, Frame, Reasoning, Text
from nova_workers.engines.programs.home import Home
from nova_workers.engines.programs.process import Launch
from nova_workers.engines.programs.tool_server import SERVER
from nova_workers.engines.programs.vendor import ProgramSettings, Request
from nova_workers.engines.strict_schemas import is_strict
from nova_workers.engines.tool_schemas import OPENAI_COMPATIBLE
from nova_workers.engines.verdicts import Verdict

__all__ = ["Codex"]

_OWN_TOOLS = frozenset({"command_execution", "file_change", "web_search", "collab_tool_call"})
"""Items of tools that Codex runs itself."""


class Codex:
    """Implements `nova_workers.engines.programs.vendor.Vendor`."""

    name = "codex"
    command = "codex"
    package = "@openai/codex"
    key_variable = "OPENAI_API_KEY"
    limits = OPENAI_COMPATIBLE
    keeps_order = False

    def enforces(self, schema: Mapping[str, Any]) -> bool:
        """See `Vendor.enforces`."""
        return is_strict(schema)

    def launch(self, home: Home, settings: ProgramSettings, request: Request) -> Launch:
        """See `Vendor.launch`."""
        home.write("codex/config.toml", settings_file(home, settings, request))
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
            case {"type": "item.started", "item": {"type": "mcp_tool_call", "server": str() as server}}:
                if server == SERVER:
                    yield Announced()
            case {"type": "item.started" | "item.completed", "item": {"type": str() as kind}} if kind in _OWN_TOOLS:
                yield Forbidden(kind)
            case {"type": "turn.completed"}:
                usage = message.get("usage")
                yield Finished(_usage(usage) if isinstance(usage, dict) else None)
            case {"type": "turn.failed", "error": {"message": str() as text}}:
                yield Failed(text)
            case _:
                # Its start, notices, and `error`, which repeats the failure or reports a retry.
                return

    def verdict(self, message: str) -> Verdict | None:
        """See `Vendor.verdict`."""
        return verdict(message)


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
