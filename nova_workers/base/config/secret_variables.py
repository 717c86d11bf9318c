"""Which variables of the environment hold secrets, by the types of the settings."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, SecretStr

from nova_workers.base.config.settings import Settings

_PREFIX = "NOVA_"
_LEAST_CHARS = 12
"""A shorter value, such as one of a header, may be a word."""


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


def secret_values(settings: Settings) -> dict[str, str]:
    """Return the keys and passwords of the settings by name, also those in URLs: no customer or log may see them."""
    found: dict[str, str] = {}
    for name, value in _held_secrets(settings, _PREFIX):
        # A key of the form id:base64 has the mark of a URL where its first bytes are all ones.
        is_url = "://" in value and (name.endswith("_URL") or "@" in value)
        found[name] = (urlsplit(value).password or "") if is_url else value
    return {name: value for name, value in found.items() if len(value) >= _LEAST_CHARS and not value.isalpha()}


def _held_secrets(value: object, name: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, SecretStr):
        yield name, value.get_secret_value()
    elif isinstance(value, BaseModel):
        for field in type(value).model_fields:
            yield from _held_secrets(
                getattr(value, field), f"{name.rstrip('_')}_{'' if name == _PREFIX else '_'}{field.upper()}"
            )
    elif isinstance(value, Mapping):
        for key, each in value.items():
            yield from _held_secrets(each, f"{name}__{str(key).upper()}")
    elif isinstance(value, tuple | list):
        for at, each in enumerate(value):
            yield from _held_secrets(each, f"{name}__{at}")


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
