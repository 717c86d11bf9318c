"""Model names: resolves aliases to ids."""

from collections.abc import Iterable, Mapping

from nova_workers.base.anthropic_models import parse_model, sdk_model_ids

ALIASES = ("haiku", "sonnet", "opus")
"""The families that the engine contract names."""


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
