"""Model names: which id an alias stands for, and what an id says of its family and version."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

from anthropic.types import Model

__all__ = ["ALIASES", "ModelName", "known_models", "newest_models", "parse_model", "resolve_model"]

ALIASES = ("haiku", "sonnet", "opus")
"""The families that the engine contract names."""

_ID = re.compile(r"^claude-(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?(?:-(?P<date>\d{8}))?$")


@dataclass(frozen=True, slots=True)
class ModelName:
    """What an id such as ``claude-opus-4-5-20251101`` says. `date` is None for the id that follows the newest."""

    family: str
    version: tuple[int, int]
    date: str | None = None


def parse_model(model_id: str) -> ModelName | None:
    """Return what the id says, or None for an id of another form."""
    match = _ID.match(model_id)
    if match is None:
        return None
    return ModelName(match["family"], (int(match["major"]), int(match["minor"] or 0)), match["date"])


def known_models() -> tuple[str, ...]:
    """Return the ids that the installed SDK lists."""
    return tuple(_literals(Model))


def newest_models(model_ids: Iterable[str]) -> dict[str, str]:
    """Return for each family its newest id; the undated one where a version has both."""
    newest: dict[str, tuple[tuple[int, int], bool, str, str]] = {}
    for model_id in model_ids:
        name = parse_model(model_id)
        if name is not None:
            rank = (name.version, name.date is None, name.date or "", model_id)
            newest[name.family] = max(rank, newest.get(name.family, rank))
    return {family: rank[-1] for family, rank in newest.items()}


def resolve_model(alias_or_id: str, overrides: Mapping[str, str] | None = None) -> str:
    """Return the id that an alias stands for; anything else is taken for an id and returned as it is.

    Args:
        alias_or_id: ``haiku``, ``sonnet``, ``opus``, a key of `overrides`, or an id.
        overrides: Aliases that the operator set; they go before ours.
    """
    if overrides and alias_or_id in overrides:
        return overrides[alias_or_id]
    return _default_aliases().get(alias_or_id, alias_or_id)


@cache
def _default_aliases() -> dict[str, str]:
    newest = newest_models(known_models())
    return {alias: newest[alias] for alias in ALIASES if alias in newest}


def _literals(annotation: Any) -> Iterable[str]:
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from _literals(part)
