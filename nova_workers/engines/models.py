"""Model names: resolves aliases to ids, and parses family and version from an id."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from nova_workers.base.anthropic_models import sdk_model_ids

ALIASES = ("haiku", "sonnet", "opus")
"""The families that the engine contract names."""

_ID = re.compile(r"^claude-(?P<family>[a-z]+)-(?P<major>\d{1,2})(?:-(?P<minor>\d{1,2}))?(?:-(?P<date>\d{8}))?$")


@dataclass(frozen=True, slots=True)
class ModelName:
    """The parts of an id such as ``claude-opus-4-5-20251101``. `date` is None for an id that tracks the newest."""

    family: str
    version: tuple[int, int]
    date: str | None = None


def parse_model(model_id: str) -> ModelName | None:
    """Return the parts of the id, or None if it has another form."""
    match = _ID.match(model_id)
    if match is None:
        return None
    return ModelName(match["family"], (int(match["major"]), int(match["minor"] or 0)), match["date"])


def known_models() -> tuple[str, ...]:
    """Return the ids that the installed SDK lists."""
    return sdk_model_ids() or ()


def newest_models(model_ids: Iterable[str]) -> dict[str, str]:
    """Return the newest id of each family; if a version has both, the undated one."""
    newest: dict[str, tuple[tuple[int, int], bool, str, str]] = {}
    for model_id in model_ids:
        name = parse_model(model_id)
        if name is not None:
            rank = (name.version, name.date is None, name.date or "", model_id)
            newest[name.family] = max(rank, newest.get(name.family, rank))
    return {family: rank[-1] for family, rank in newest.items()}


def resolve_model(alias_or_id: str, overrides: Mapping[str, str] | None = None) -> str:
    """Return the id for an alias; any other name is returned unchanged as an id.

    Args:
        alias_or_id: ``haiku``, ``sonnet``, ``opus``, a key of `overrides`, or an id.
        overrides: The operator's aliases, which take precedence.
    """
    if overrides and alias_or_id in overrides:
        return overrides[alias_or_id]
    return _DEFAULT_ALIASES.get(alias_or_id, alias_or_id)


def _default_aliases() -> dict[str, str]:
    newest = newest_models(known_models())
    return {alias: newest[alias] for alias in ALIASES if alias in newest}


_DEFAULT_ALIASES = _default_aliases()
