"""Lets a fleet ask the model of a test, and no provider, whichever engine an agent has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Final

from pydantic import TypeAdapter, ValidationError

from nova_workers.base.config.openai import ProviderName
from nova_workers.contracts.http.projects import ProjectAgent

NOT_SERVED: Final = ("codex", "gemini")
"""Engines whose programs the model does not answer."""
_KEY: Final = "test"
_OPENAI: Final = "openai"
_PRICE: Final = {"input": 1.0, "output": 1.0}
"""Any price: agents with a bound on cost need a known one."""
_NAME: Final[TypeAdapter[str]] = TypeAdapter(ProviderName)


def model_variables(url: str, agents: Iterable[ProjectAgent]) -> dict[str, str]:
    """Return the variables of such a fleet.

    Args:
        url: The model's server.
        agents: Those of the project. The models of the engine `openai` are OpenAI's, by the Responses API, or have the
            name of another server before the slash, which speaks chat completions: both are the engine's defaults.
    """
    server: dict[str, Any] = {"base_url": f"{url}/v1", "api_key": _KEY, "prices": {"*": _PRICE}}
    providers = {name: {**server, "api": "chat"} for name in _provider_names(agents)}
    providers[_OPENAI] = {**server, "api": "responses"}
    variables = {
        "NOVA_MODEL__BASE_URL": url,
        "NOVA_MODEL__API_KEY": _KEY,
        "NOVA_OPENAI__MODEL": f"{_OPENAI}/{_KEY}",
        "NOVA_OPENAI__PROVIDERS": json.dumps(providers),
    }
    for engine in NOT_SERVED:
        variables[f"NOVA_{engine.upper()}__BASE_URL"] = f"{url}/{engine}"
        variables[f"NOVA_{engine.upper()}__API_KEY"] = _KEY
    return variables


def _provider_names(agents: Iterable[ProjectAgent]) -> Iterator[str]:
    for agent in agents:
        name, slash, _ = (agent.model or "").partition("/")
        if agent.engine == _OPENAI and slash and _is_provider_name(name):
            yield name


def _is_provider_name(name: str) -> bool:
    try:
        _NAME.validate_python(name)
    except ValidationError:
        return False
    return True
