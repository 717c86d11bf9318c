"""The settings file of one run of Codex."""

import json
from collections.abc import Mapping
from typing import Final

import orjson

from nova_workers.contracts.content import JsonObject
from nova_workers.engines.codex.installed import Installed
from nova_workers.engines.programs.home import Home
from nova_workers.engines.programs.tool_server import SERVER, relay_command
from nova_workers.engines.programs.vendor import ProgramSettings, Request

KEY_VARIABLE: Final = "NOVA_PROGRAM_KEY"
"""The variable in which the program gets its key. No process that it starts gets it: MCP servers get a few variables
that it names itself, and there are no commands."""
_OPENAI: Final = "https://api.openai.com/v1"
_START_S: Final = 60
"""Longest wait for the relay, which starts in 0.1 s, on a busy machine."""
_SPARE_S: Final = 3_600
"""The turn ends a call that takes too long; the program's own limit is only behind that."""

_SETTINGS: Final[JsonObject] = {
    "approval_policy": "never",
    "sandbox_mode": "read-only",
    "web_search": "disabled",
    "check_for_update_on_startup": False,
    "project_doc_max_bytes": 0,
    "include_permissions_instructions": False,
    "include_environment_context": False,
    "include_apps_instructions": False,
    "include_collaboration_mode_instructions": False,
    "agents": {"enabled": False},
    "tools": {"experimental_request_user_input": {"enabled": False}},
    "analytics": {"enabled": False},
    "feedback": {"enabled": False},
    "history": {"persistence": "none"},
    "skills": {"include_instructions": False},
}


def settings_file(home: Home, settings: ProgramSettings, request: Request, installed: Installed) -> str:
    """Return the text of ``config.toml``.

    All features that the program has are off: what a later version adds, too. Nothing that the turn needs is one.
    """
    command, *arguments = relay_command(home.socket)
    provider: JsonObject = {
        "name": SERVER,
        "base_url": settings.base_url or _OPENAI,
        "env_key": KEY_VARIABLE,
        "wire_api": "responses",
        "request_max_retries": 0,
        "stream_max_retries": 0,
    }
    server: JsonObject = {
        "command": command,
        "args": arguments,
        "required": True,
        "startup_timeout_sec": _START_S,
        "tool_timeout_sec": round(request.tool_timeout_s) + _SPARE_S,
        "supports_parallel_tool_calls": True,
        "default_tools_approval_mode": "approve",
    }
    own: JsonObject = {
        "model": request.model,
        "model_provider": SERVER,
        "model_catalog_json": str(home.write("models.json", orjson.dumps(installed.catalog))),
        "features": dict.fromkeys(installed.features, False),
        "model_instructions_file": str(home.base / "instructions.md"),
        "model_providers": {SERVER: provider},
        "mcp_servers": {SERVER: server},
    }
    if request.effort is not None:
        own["model_reasoning_effort"] = request.effort
    return "".join(f"{name} = {_toml(value)}\n" for name, value in (_SETTINGS | own).items())


def _toml(value: object) -> str:
    """Return a value in TOML. JSON's strings, numbers, booleans and lists of them are TOML's too."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{json.dumps(name)} = {_toml(item)}" for name, item in value.items()) + "}"
    return json.dumps(value)
