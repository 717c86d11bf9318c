"""Gemini CLI as a vendor's program: ``gemini --output-format stream-json``.

Its tools are an allow-list that has those of the bridge only: the program refuses every other one, also tools that a
later version adds. It runs in the approval mode ``default``, in which a tool that is not of the bridge would need a
person's consent, and there is no terminal to ask for it.
"""

import json
from collections.abc import Iterable, Mapping
from typing import Any, Final

from nova_workers.contracts.content import JsonObject
from nova_workers.contracts.usage import TokenUsage
from nova_workers.engines import bounds
from nova_workers.engines.gemini.failures import VERDICTS
from nova_workers.engines.programs.frames import Announced, Failed, Finished, Forbidden, Frame, Text
from nova_workers.engines.programs.home import Home
from nova_workers.engines.programs.process import Launch
from nova_workers.engines.programs.tool_server import SERVER, relay_command
from nova_workers.engines.programs.vendor import ProgramSettings, Request
from nova_workers.engines.tool_schemas import GEMINI

_KEY_VARIABLE: Final = "GEMINI_API_KEY"
_TOOL_PREFIX: Final = f"mcp_{SERVER}_"
_SPARE_S: Final = 3_600
"""The turn ends a call that takes too long; the program's own limit is only behind that."""
_SETTINGS: Final[JsonObject] = {
    "security": {"auth": {"selectedType": "gemini-api-key"}, "folderTrust": {"enabled": False}},
    "general": {
        "enableAutoUpdate": False,
        "enableAutoUpdateNotification": False,
        "checkpointing": {"enabled": False},
        "plan": {"enabled": False},
        # Retries are ours.
        "maxAttempts": 1,
        "retryFetchErrors": False,
    },
    "privacy": {"usageStatisticsEnabled": False},
    "telemetry": {"enabled": False},
    # The turn has its own limits, and the ledger its own compaction.
    "model": {"skipNextSpeakerCheck": True, "disableLoopDetection": True, "compressionThreshold": 1},
    "tools": {"core": [f"{_TOOL_PREFIX}*"], "useRipgrep": False, "truncateToolOutputThreshold": 0},
    "context": {"fileName": [], "includeDirectoryTree": False},
    "skills": {"enabled": False},
    "hooksConfig": {"enabled": False},
    "experimental": {"enableAgents": False},
    "mcp": {"allowed": [SERVER]},
}


class Gemini:
    """Implements `nova_workers.engines.programs.vendor.Vendor`."""

    name = "gemini"
    command = "gemini"
    package = "@google/gemini-cli"
    key_variable = _KEY_VARIABLE
    limits = GEMINI
    verdicts = VERDICTS
    keeps_order = True

    def enforces(self, schema: Mapping[str, Any]) -> bool:
        """See `Vendor.enforces`. The program has no option for it."""
        return False

    async def prepare(self, settings: ProgramSettings, request: Request) -> None:
        """See `Vendor.prepare`. The allow-list of tools holds for every version and model."""

    def launch(self, home: Home, settings: ProgramSettings, request: Request) -> Launch:
        """See `Vendor.launch`."""
        command, *arguments = relay_command(home.socket)
        timeout_ms = round((request.tool_timeout_s + _SPARE_S) * 1000)
        server = {"command": command, "args": arguments, "trust": True, "timeout": timeout_ms}
        home.write("home/.gemini/settings.json", json.dumps({**_SETTINGS, "mcpServers": {SERVER: server}}))
        prompt = home.write("instructions.md", request.instructions or "You are a helpful agent.")
        key = settings.api_key or ""
        variables = {
            _KEY_VARIABLE: key,
            "GEMINI_CLI_HOME": str(home.user),
            "GEMINI_SYSTEM_MD": str(prompt),
            # Settings of the machine would go before those of the home.
            "GEMINI_CLI_SYSTEM_SETTINGS_PATH": str(home.base / "none.json"),
            "GEMINI_CLI_SYSTEM_DEFAULTS_PATH": str(home.base / "none.json"),
            # It would start itself again, with more memory.
            "GEMINI_CLI_NO_RELAUNCH": "true",
        }
        if settings.base_url is not None:
            variables["GOOGLE_GEMINI_BASE_URL"] = settings.base_url
        environment = {**settings.environment, **home.environment(), **variables}
        text = request.prompt.text
        for number, image in enumerate(request.prompt.images, 1):
            file = home.write(f"work/image-{number}.{image.ending}", image.content)
            text += f"\n[image {number}]: @{file.name}"
        arguments = ["--output-format", "stream-json", "--skip-trust", "--approval-mode", "default"]
        launch_command = (request.program, *arguments, "--model", request.model)
        return Launch(launch_command, environment, str(home.work), text, (key,) if key else ())

    def frames(self, message: JsonObject) -> Iterable[Frame]:
        """See `Vendor.frames`."""
        match message:
            case {"type": "message", "role": "assistant", "content": str() as text}:
                yield Text(text, whole=message.get("delta") is not True)
            case {"type": "tool_use", "tool_name": str() as name}:
                # A name that the model invented is refused by the program, and the model gets an error.
                if name.startswith(_TOOL_PREFIX):
                    yield Announced()
            case {"type": "tool_result", "status": "success", "tool_id": str() as call_id}:
                if not call_id.startswith(_TOOL_PREFIX):
                    yield Forbidden(call_id.partition("__")[0])
            case {"type": "result", "status": "success"}:
                stats = message.get("stats")
                yield Finished(_usage(stats) if isinstance(stats, dict) else None)
            case {"type": "result", "error": {"message": str() as text}}:
                yield Failed(text)
            case _:
                # Its start, the prompt, and warnings.
                return


def _usage(stats: JsonObject) -> TokenUsage:
    def count(name: str) -> int:
        return bounds.count(stats.get(name))

    read, cached, produced = count("input_tokens"), count("cached"), count("output_tokens")
    # What is neither read nor produced is reasoning, which is priced like what is produced.
    reasoning = max(count("total_tokens") - read - produced, 0)
    return TokenUsage(
        input_tokens=max(read - cached, 0),
        output_tokens=produced + reasoning,
        cache_read_tokens=cached,
        reasoning_tokens=reasoning,
    )
