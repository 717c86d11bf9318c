"""Validation of an agent's configuration beyond the form of its fields. Pure: asks no server and no registry."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterable

from nova_workers.base.errors import InvalidInput
from nova_workers.base.json_schemas import schema_problem
from nova_workers.base.vocabulary import ENGINE_NAMES
from nova_workers.contracts.agents import MAX_RESPONSIBILITIES, AgentSpec, Responsibility
from nova_workers.contracts.default_agents import RESERVED_AGENTS
from nova_workers.contracts.run_options import LACKING_OPTIONS

RESERVED_IDS = frozenset({"person", "seed"})
"""Value of `created_by` for anything that no agent created."""

_QUOTE_CHARS = 200
_WITHOUT_TEMPERATURE = frozenset(engine for engine, lacking in LACKING_OPTIONS.items() if "temperature" in lacking)


def check_agent_id(agent_id: str) -> None:
    """Check the id of a new agent, whose form was already checked.

    Raises:
        InvalidInput: It is reserved.
    """
    if agent_id in RESERVED_IDS:
        raise _wrong("id", f"{agent_id!r} is a word that the history of agents uses; choose another id")


def check_own_id(agent_id: str) -> None:
    """Check that an id that a person or an agent chose does not belong to an agent of the fleet itself.

    Raises:
        InvalidInput: It does.
    """
    if agent_id in RESERVED_AGENTS:
        raise _wrong("id", f"{agent_id!r} is an agent of the fleet itself; choose another id")


def check_engine(engine: str | None) -> None:
    """Check the name of an engine: that the engine exists, not that this fleet's workers have it.

    Raises:
        InvalidInput: No such engine exists.
    """
    if engine is not None and engine not in ENGINE_NAMES:
        raise _wrong("engine", f"there is no engine {_quoted(engine)}; there are {', '.join(ENGINE_NAMES)}")


def check_spec(spec: AgentSpec) -> None:
    """Check a configuration.

    Raises:
        InvalidInput: A value is invalid; names the field, such as ``responsibilities.2.title``.
    """
    for field, text in (("name", spec.name), ("model", spec.model), ("engine", spec.engine)):
        if text is not None and not text.strip():
            raise _wrong(field, "there is nothing but white space in it")
    _check_responsibilities(spec.responsibilities)
    _check_directories(spec.directories)
    for name, grant in spec.capabilities.items():
        _check_unique(f"capabilities.{name}.tools", grant.tools or ())
    for name, helper in spec.subagents.items():
        _check_unique(f"subagents.{name}.tools", helper.tools or ())
    if spec.temperature is not None:
        _check_temperature(spec)
    if spec.output_schema is not None and (problem := schema_problem(spec.output_schema, "output_schema")):
        raise _wrong(*problem)


def _check_temperature(spec: AgentSpec) -> None:
    if spec.thinking_budget_tokens is not None:
        raise _wrong(
            "temperature",
            "a model that thinks takes none; leave out either temperature or thinking_budget_tokens",
        )
    if spec.engine in _WITHOUT_TEMPERATURE:
        raise _wrong(
            "temperature", f"the engine {spec.engine!r} takes none; leave it out, or use the engine 'anthropic'"
        )


def title_key(title: str) -> str:
    """Return a key that is equal for titles that look the same to a reader."""
    return " ".join(title.split()).casefold()


def _check_responsibilities(duties: Collection[Responsibility]) -> None:
    if len(duties) > MAX_RESPONSIBILITIES:
        raise _wrong("responsibilities", f"there are {len(duties)}; an agent has at most {MAX_RESPONSIBILITIES}")
    seen: dict[str, int] = {}
    for index, duty in enumerate(duties):
        field = f"responsibilities.{index}.title"
        key = title_key(duty.title)
        if not key:
            raise _wrong(field, "there is nothing but white space in it")
        if not duty.title.strip().isprintable():
            raise _wrong(field, f"a title is one line of text; got {_quoted(duty.title)}")
        if key in seen:
            raise _wrong(field, f"{_quoted(duty.title)} is the title of responsibilities.{seen[key]} too; rename one")
        seen[key] = index


def _check_directories(directories: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, path in enumerate(directories):
        field = f"directories.{index}"
        if not path.isprintable():
            raise _wrong(field, f"{_quoted(path)} holds characters that cannot be printed")
        if path.startswith("~"):
            # The home directory depends on the user and the machine, which differ between the agent's runs.
            whole = posixpath.normpath(posixpath.expanduser(path))
            hint = f"; for the user of this server it would be {_quoted(whole)}" if whole.startswith("/") else ""
            raise _wrong(field, f"{_quoted(path)} is wrong: ~ is not expanded. Write the whole path{hint}")
        if not path.startswith("/"):
            raise _wrong(field, f"{_quoted(path)} is not absolute; begin it with a slash")
        # POSIX lets two leading slashes mean something else; nothing that we run on does.
        normal = "/" + posixpath.normpath(path).lstrip("/")
        if path != normal:
            raise _wrong(field, f"{_quoted(path)} is not in its plain form; write {_quoted(normal)}")
        if path in seen:
            raise _wrong(field, f"{_quoted(path)} is there twice")
        seen.add(path)


def _check_unique(field: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for index, name in enumerate(names):
        if name in seen:
            raise _wrong(f"{field}.{index}", f"{_quoted(name)} is there twice")
        seen.add(name)


def _wrong(field: str, why: str) -> InvalidInput:
    return InvalidInput(f"{field}: {why}.", field=field)


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _QUOTE_CHARS else text[:_QUOTE_CHARS] + "…")
