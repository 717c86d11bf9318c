"""The models that installed programs know (Codex, Gemini CLI and Claude Code), and their addition to a ``models.yaml``.

Best effort: a failure is a note. Nothing here runs on the event loop: files are read in threads, programs run as
children with time limits.
"""

from __future__ import annotations

import asyncio
import math
import re
import shutil
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import orjson
import yaml

from nova_workers.base.child_process import Bounds, run_child
from nova_workers.domain.orchestrations.rules.config.reading import read_yaml
from nova_workers.domain.orchestrations.rules.config.values import ResolvedModel
from nova_workers.domain.orchestrations.rules.models import strings_child
from nova_workers.domain.orchestrations.rules.models.capability import infer_capability, version_of
from nova_workers.domain.orchestrations.rules.models.registry import is_chat_model, undated

_QUICK_S: Final = 10.0
_SCAN_S: Final = 60.0
"""A program of 300 MB takes about 1 s."""
_REFRESH_S: Final = 30.0
_UPDATE_S: Final = 300.0
_CODEX_CACHE_S: Final = 86_400.0
_CODEX_LIST: Final = ("codex", "debug", "models")
"""Prints the models that Codex offers; on the way it renews its cache if that is old. It asks no model."""
_MAX_FILE_BYTES: Final = 10_000_000
_OUTPUT_BYTES: Final = 200_000
_PASSED_ON: Final = ("PATH", "HOME", "CODEX_HOME", "LANG", "HTTPS_PROXY", "HTTP_PROXY", "NO_PROXY", "NPM_CONFIG_PREFIX")

_MODELS_JS: Final = "@google/gemini-cli-core/dist/src/config/models.js"
_GEMINI_PATHS: Final = (_MODELS_JS, f"@google/gemini-cli/node_modules/{_MODELS_JS}")
_GEMINI_ID = re.compile(r"""['"`](gemini-\d[\w.-]*)['"`]""")
_CLAUDE_ID = re.compile(r"claude-(?:opus|sonnet|haiku|fable|mythos)-(?:[4-9]|\d\d)(?:-\d{1,2})?(?:-\d{8})?")
"""Not ``-v1`` of Bedrock, ``@date`` of Vertex, nor the models up to 3.x, which have their number first."""
_UPDATES: Final[Mapping[str, tuple[str, ...]]] = {
    "claude": ("claude", "update"),
    "codex": ("npm", "update", "-g", "@openai/codex"),
    "gemini": ("npm", "update", "-g", "@google/gemini-cli"),
}


@dataclass(frozen=True, slots=True, order=True)
class DiscoveredModel:
    """A model that a program knows."""

    provider: str
    model_id: str


@dataclass(frozen=True, slots=True)
class Discovery:
    """What was found, and why nothing was found of a provider."""

    models: tuple[DiscoveredModel, ...]
    notes: tuple[str, ...] = ()


class _NotFound(Exception):
    """There is nothing to read; says what."""


async def discover_models(environ: Mapping[str, str], now: datetime) -> Discovery:
    """Return the models that the programs of this machine know, by provider and id. Never raises for a program.

    Args:
        environ: Where programs and homes are: PATH, HOME, CODEX_HOME.
        now: Tells whether a program's own list is old.
    """
    notes: list[str] = []
    sources = {"codex": _codex(environ, now, notes), "gemini": _gemini(environ), "claude": _claude(environ)}
    found = await asyncio.gather(*sources.values(), return_exceptions=True)
    models: set[DiscoveredModel] = set()
    for provider, ids in zip(sources, found, strict=True):
        if isinstance(ids, (_NotFound, OSError, ValueError)):
            notes.append(f"{provider}: {ids}")
        elif isinstance(ids, BaseException):
            raise ids
        else:
            models |= {DiscoveredModel(provider, model_id) for model_id in ids if is_chat_model(model_id)}
    return Discovery(tuple(sorted(models)), tuple(notes))


async def update_programs(environ: Mapping[str, str]) -> list[str]:
    """Update the installed programs, and return one line for each that was. It changes this machine."""
    names = [name for name, command in _UPDATES.items() if shutil.which(command[0], path=environ.get("PATH"))]
    updates = (_run(_UPDATES[name], environ, _UPDATE_S) for name in names)
    outcomes = await asyncio.gather(*updates, return_exceptions=True)
    lines: list[str] = []
    for name, outcome in zip(names, outcomes, strict=True):
        if isinstance(outcome, BaseException) and not isinstance(outcome, (_NotFound, OSError)):
            raise outcome
        lines.append(f"{name}: {outcome}" if isinstance(outcome, BaseException) else f"{name}: updated")
    return lines


async def _codex(environ: Mapping[str, str], now: datetime, notes: list[str]) -> set[str]:
    """Return the models of Codex's cache, renewed if it is old. An old cache that stays old counts, with a note."""
    home = environ.get("CODEX_HOME") or f"{environ.get('HOME', '')}/.codex"
    cache = Path(home) / "models_cache.json"
    if await asyncio.to_thread(_age_s, cache, now) > _CODEX_CACHE_S and shutil.which("codex", path=environ.get("PATH")):
        try:
            await _run(_CODEX_LIST, environ, _REFRESH_S)
        except (_NotFound, OSError) as error:
            notes.append(f"codex: its list of models is old and was not renewed: {error}")
    return _listed_slugs(orjson.loads(await asyncio.to_thread(_read, cache)))


def _listed_slugs(cache: Any) -> set[str]:
    """Return the slugs of models that Codex shows in its list."""
    models = cache.get("models") if isinstance(cache, dict) else None
    if not isinstance(models, list):
        raise _NotFound("models_cache.json has no list of models")
    return {
        str(model["slug"])
        for model in models
        if isinstance(model, dict) and isinstance(model.get("slug"), str) and model.get("visibility") == "list"
    }


async def _gemini(environ: Mapping[str, str]) -> set[str]:
    root = (await _run(("npm", "root", "-g"), environ, _QUICK_S)).strip()
    for path in _GEMINI_PATHS:
        try:
            text = await asyncio.to_thread(_read, Path(root) / path)
        except _NotFound:
            continue
        return set(_GEMINI_ID.findall(text.decode(errors="replace")))
    raise _NotFound(f"there is no gemini-cli below {root!r}")


async def _claude(environ: Mapping[str, str]) -> set[str]:
    program = shutil.which("claude", path=environ.get("PATH")) or _bundled_claude()
    if program is None:
        raise _NotFound("there is no program 'claude'")
    command = (sys.executable, "-I", "-S", strings_child.__file__, program)
    return {line for line in (await _run(command, environ, _SCAN_S)).split() if _CLAUDE_ID.fullmatch(line)}


def _bundled_claude() -> str | None:
    """Return the program that ships with the SDK of the engine `claude_agent`."""
    spec = find_spec("claude_agent_sdk")
    if spec is None or spec.origin is None:
        return None
    program = Path(spec.origin).parent / "_bundled" / "claude"
    return str(program) if program.is_file() else None


async def _run(command: Sequence[str], environ: Mapping[str, str], timeout_s: float) -> str:
    env = {name: environ[name] for name in _PASSED_ON if name in environ}
    done = await run_child(command, Bounds(timeout_s, head_bytes=_OUTPUT_BYTES), env=env)
    if done.exit_code != 0:
        why = f"took more than {timeout_s:g} s" if done.exit_code is None else f"ended with {done.exit_code}"
        raise _NotFound(f"{' '.join(command[:3])} {why}")
    return done.text()


def _age_s(path: Path, now: datetime) -> float:
    """Return the age of a file; infinity if there is none."""
    return now.timestamp() - path.stat().st_mtime if path.is_file() else math.inf


def _read(path: Path) -> bytes:
    if not path.is_file():
        raise _NotFound(f"there is no {path}")
    size = path.stat().st_size
    if size > _MAX_FILE_BYTES:
        raise _NotFound(f"{path} has {size} bytes, more than {_MAX_FILE_BYTES}")
    return path.read_bytes()


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
