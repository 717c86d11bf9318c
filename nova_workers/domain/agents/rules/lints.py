"""What in a configuration is permitted, and still unlikely to work: of the models and secrets that the fleet has.

A save refuses what is wrong whatever the fleet has. What depends on the fleet of this moment is a warning: a model may
be newer than the lists, and a secret may be set later.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Final

import orjson

from nova_workers.base.anthropic_models import takes_temperature
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.agents import AgentWarning
from nova_workers.contracts.http.orchestration_config import OrchestrationModelView

_LISTED: Final = frozenset({"anthropic", "openai"})
"""The engines whose models the fleet's list has. Those over a vendor's program have their own."""
_REFERENCE: Final = re.compile(r"\$\{secret:([A-Z][A-Z0-9_]*)\}")


def secrets_named(spec: AgentSpec) -> dict[str, set[str]]:
    """Return the names of the secrets in each capability's configuration, by the path of its field."""
    texts = {
        f"capabilities.{name}.config": orjson.dumps(grant.model_dump(mode="json")).decode()
        for name, grant in spec.capabilities.items()
    }
    return {path: found for path, text in texts.items() if (found := set(_REFERENCE.findall(text)))}


def lint_spec(
    spec: AgentSpec,
    *,
    default_engine: str,
    models: Sequence[OrchestrationModelView],
    secrets: Iterable[str] | None,
) -> list[AgentWarning]:
    """Return warnings, by field.

    Args:
        spec: A valid configuration.
        default_engine: The engine of an agent that names none.
        models: Those that the fleet knows.
        secrets: The names of the secrets that there are; None does not look.
    """
    known = {name: model for model in models for name in (model.model_id, *model.names)}
    if (spec.engine or default_engine) not in _LISTED or not known:
        return list(_of_secrets(spec, secrets))
    return [*_of_models(spec, known), *_of_temperature(spec, known), *_of_secrets(spec, secrets)]


def _of_models(spec: AgentSpec, known: Mapping[str, OrchestrationModelView]) -> Iterator[AgentWarning]:
    asked = {"model": spec.model, **{f"subagents.{name}.model": each.model for name, each in spec.subagents.items()}}
    for field, name in asked.items():
        if name is None:
            continue
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f" Did you mean {near[0]!r}?" if near else ""
            yield AgentWarning(field=field, message=f"No list of this fleet has the model {name!r}.{hint}")
        elif why := known[name].unavailable:
            yield AgentWarning(field=field, message=f"Its provider cannot be used now: {why}")


def _of_temperature(spec: AgentSpec, known: Mapping[str, OrchestrationModelView]) -> Iterator[AgentWarning]:
    if spec.temperature is None or spec.model is None:
        return
    model_id = known[spec.model].model_id if spec.model in known else spec.model
    if not takes_temperature(model_id):
        yield AgentWarning(
            field="temperature", message=f"The model {spec.model!r} takes no temperature: turns go on without it."
        )


def _of_secrets(spec: AgentSpec, secrets: Iterable[str] | None) -> Iterator[AgentWarning]:
    if secrets is None:
        return
    have = set(secrets)
    for field, named in secrets_named(spec).items():
        for name in sorted(named - have):
            yield AgentWarning(field=field, message=f"There is no secret {name}: what needs it fails until it is set.")
