"""Adds discovered models to a ``models.yaml``. What a person wrote stays as it is, comments and order too. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
import yaml

from nova_workers.domain.orchestrations.rules.config.reading import read_yaml
from nova_workers.domain.orchestrations.rules.config.values import ResolvedModel
from nova_workers.domain.orchestrations.rules.models.capability import infer_capability, version_of
from nova_workers.domain.orchestrations.rules.models.installed import undated
from nova_workers.domain.orchestrations.rules.models.programs import DiscoveredModel

__all__ = ["MergedModels", "merge_models"]

_CLAUDE: Final = "claude-"
_LETTERS = re.compile(r"[a-z]+")
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9._-]*\Z")
_WORDS_OF_YAML: Final = frozenset({"y", "n", "yes", "no", "true", "false", "on", "off", "null"})


@dataclass(frozen=True, slots=True)
class MergedModels:
    """A ``models.yaml`` with what was added to it."""

    text: str
    added: tuple[DiscoveredModel, ...] = ()


def merge_models(
    text: str,
    discovered: Iterable[DiscoveredModel],
    *,
    known: Mapping[str, ResolvedModel],
    taken: Collection[str] = (),
) -> MergedModels:
    """Return a ``models.yaml`` with models that were not known: an alias and an entry of `model_registry` for each.

    Args:
        text: The file, which is known to be right.
        discovered: What programs know. Left out are snapshots with a date of a model that is known, and models older
            than all known ones of their family: programs keep the ids of models that providers retired.
        known: Names that need no configuration.
        taken: Names that the configuration beside the file uses.
    """
    located, problems = read_yaml(text, "models.yaml")
    if problems:
        return MergedModels(text)
    aliases: Mapping[str, Any] = located.value.get("models") or {}
    registry: Mapping[str, Any] = located.value.get("model_registry") or {}
    there = {*known, *taken, *aliases, *registry, *_ids(aliases)}
    by_id = {model.model_id: model for model in discovered}
    plain = set(undated([*by_id, *there]))
    oldest = _oldest_versions(known)
    new = [
        by_id[model_id]
        for model_id in sorted(by_id)
        if model_id in plain and model_id not in there and version_of(model_id) >= oldest.get(_family(model_id), ())
    ]
    if not new:
        return MergedModels(text)
    short = {_alias(model): {"provider": model.provider, "model_id": model.model_id} for model in new}
    merged = _insert(text, "models", {name: entry for name, entry in short.items() if name not in there})
    merged = _insert(merged, "model_registry", {model.model_id: _capability(model) for model in new})
    return MergedModels(merged, tuple(new))


def _ids(aliases: Mapping[str, Any]) -> set[str]:
    entries = (entry if isinstance(entry, str) else entry.get("model_id") for entry in aliases.values())
    return {entry for entry in entries if isinstance(entry, str)}


def _family(model_id: str) -> tuple[str, ...]:
    return tuple(_LETTERS.findall(model_id.lower()))


def _oldest_versions(known: Mapping[str, ResolvedModel]) -> dict[tuple[str, ...], tuple[int, ...]]:
    """Return the lowest version that is known of each family."""
    oldest: dict[tuple[str, ...], tuple[int, ...]] = {}
    for model in known.values():
        family, version = _family(model.model_id), version_of(model.model_id)
        oldest[family] = min(version, oldest.get(family, version))
    return oldest


def _alias(model: DiscoveredModel) -> str:
    return model.model_id.removeprefix(_CLAUDE)


def _capability(model: DiscoveredModel) -> dict[str, object]:
    inferred = infer_capability(model.model_id, model.provider)
    return {"provider": model.provider, "tier": inferred.tier, "affinities": dict(inferred.affinities)}


def _insert(text: str, section: str, entries: Mapping[str, object]) -> str:
    """Return the text with entries at the beginning of a section, which is made if it is not there."""
    if not entries:
        return text
    root: Any = yaml.compose(text, Loader=yaml.SafeLoader)
    found = None if root is None else next((pair for pair in root.value if pair[0].value == section), None)
    if root is not None and root.flow_style and found is None:
        at = root.start_mark.index + 1
        return f"{text[:at]}{section}: {{{_flow(entries)}}}, {text[at:]}"
    if found is None:
        return f"{text.rstrip()}\n\n{section}:\n{_block(entries, 2)}".lstrip()
    key, value = found
    if not isinstance(value, yaml.MappingNode):
        # A section without anything below it.
        at = key.end_mark.index + 1
        return f"{text[:at]} {{{_flow(entries)}}}{text[at:]}"
    if value.flow_style:
        at = value.start_mark.index + 1
        return f"{text[:at]}{_flow(entries)}, {text[at:]}"
    at = value.start_mark.index - value.start_mark.column
    return f"{text[:at]}{_block(entries, value.start_mark.column)}{text[at:]}"


def _block(entries: Mapping[str, object], indent: int) -> str:
    return "".join(f"{' ' * indent}{_key(name)}: {_json(entry)}\n" for name, entry in entries.items())


def _flow(entries: Mapping[str, object]) -> str:
    return ", ".join(f"{_key(name)}: {_json(entry)}" for name, entry in entries.items())


def _key(name: str) -> str:
    return name if _PLAIN.match(name) and name.lower() not in _WORDS_OF_YAML else orjson.dumps(name).decode()


def _json(entry: object) -> str:
    # JSON is YAML; a blank after each colon and comma is for readers, and for YAML 1.1.
    return orjson.dumps(entry).decode().replace('":', '": ').replace(',"', ', "')
