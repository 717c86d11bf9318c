"""Which variables of the environment hold secrets, by the types of the settings."""

import json
from collections.abc import Collection, Iterator
from typing import Any, get_args

from pydantic import BaseModel, SecretStr

from nova_workers.config.settings import Settings

__all__ = ["masked_variables", "secret_settings", "setting_of"]

_PREFIX = "NOVA_"


def secret_settings() -> frozenset[str]:
    """Return the names of the settings that hold a secret, such as ``NOVA_MODEL__API_KEY``; maps and lists whole."""
    return frozenset(_secret_names(Settings, _PREFIX))


def setting_of(variable: str, settings: Collection[str]) -> str | None:
    """Return the one of `settings` that a variable gives, whole or a part of (``…__PROVIDERS__LOCAL__API_KEY``)."""
    name = variable.upper()
    while name and name not in settings:
        name = name.rpartition("__")[0]
    return name or None


def masked_variables(settings: Settings, sections: Collection[str]) -> dict[str, str]:
    """Return the secret settings of some sections as variables that have asterisks in place of each secret.

    For a process that needs to know which keys there are, and not the keys. Settings that are unset are left out.
    """
    secret, found = secret_settings(), dict[str, str]()
    # Secret values are asterisks in JSON.
    document: dict[str, Any] = settings.model_dump(mode="json", include=set(sections), exclude_unset=True)
    for section, fields in document.items():
        for field, value in fields.items():
            name = f"{_PREFIX}{section}__{field}".upper()
            if name in secret and value is not None:
                found[name] = value if isinstance(value, str) else json.dumps(value)
    return found


def _secret_names(model: type[BaseModel], prefix: str) -> Iterator[str]:
    for name, field in model.model_fields.items():
        variable = prefix + name.upper()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from _secret_names(field.annotation, f"{variable}__")
        elif _holds_secret(field.annotation):
            yield variable


def _holds_secret(kind: Any) -> bool:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        return any(_holds_secret(field.annotation) for field in kind.model_fields.values())
    return kind is SecretStr or any(_holds_secret(part) for part in get_args(kind))
