"""Reads a folder that `nova export` made, and that people may have changed, as the rows of an archive."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.archive.layout import LINE_KINDS, NOTE_FIELDS, PLAIN_LISTS, dump

Row = dict[str, Any]
T = TypeVar("T")

_TABLES = {kind: table for table, kind in LINE_KINDS.items()}


def read_folder(root: Path) -> Iterator[bytes]:
    """Yield the lines of an archive. Parents come before what belongs to them.

    Raises:
        InvalidInput: The folder is not an export, or a file in it cannot be read; the message names it.
    """
    settings = root / "settings.json"
    if not settings.is_file():
        raise InvalidInput(f"{str(root)!r} is not a folder of `nova export`: it has no settings.json.", field="dir")
    yield _line("archive", _json(settings))
    agents = sorted(path for path in (root / "agents").glob("*") if path.is_dir())
    for agent in agents:
        yield from _agent(agent)
    yield from _skills(root / "skills")
    for table, name in PLAIN_LISTS.items():
        yield from _list(root / name, table)
    tasks = root / "tasks"
    for file in [tasks / "active.jsonl", *sorted((tasks / "history").glob("*.jsonl")), root / "deliveries.jsonl"]:
        yield from _lines(file)
    for agent in agents:
        yield from _list(agent / "triggers.json", "triggers")
        yield from _lines(agent / "firings.jsonl")
        for note in sorted((agent / "notes").glob("*.md")):
            yield _line("notes", {"agent_id": agent.name, **_read(note, _note)})
        for sent in sorted((agent / "files").glob("*.json")):
            content = _read(sent.with_suffix(".content"), lambda raw: raw.hex())
            yield _line("sent_files", {**_json(sent), "content": f"\\x{content}"})
        for thread in sorted((agent / "threads").glob("*.jsonl")):
            yield from _lines(thread)
    yield _line("end", {"open_runs": 0})


def _agent(folder: Path) -> Iterator[bytes]:
    file = folder / "agent.json"
    agent = _json(file)
    spec, version = agent.get("spec"), agent.get("version")
    if not isinstance(spec, dict) or agent.get("id") != folder.name:
        raise InvalidInput(f"{str(file)!r} does not belong to agent {folder.name!r}, or has no spec.", field=file.name)
    instructions = folder / "instructions.md"
    if instructions.is_file():
        spec["instructions"] = _read(instructions, bytes.decode)
    yield _line("agents", agent)
    for row in _rows(folder / "versions.jsonl"):
        newest = row.get("version") == version
        yield _line("agent_versions", {**row, "spec": spec} if newest else row)


def _skills(folder: Path) -> Iterator[bytes]:
    for skill in sorted(path for path in folder.glob("*") if path.is_dir()):
        text = _read(skill / "SKILL.md", bytes.decode)
        times = skill.with_name(f"{skill.name}.json")
        if not times.is_file():
            raise InvalidInput(f"Skill {skill.name!r} has no {times.name} beside it. `nova skills add` adds skills.")
        yield _line("skills", {"name": skill.name, "skill_md": text, **_json(times)})
        for file in sorted(path for path in skill.rglob("*") if path.is_file() and not path.is_symlink()):
            path = file.relative_to(skill).as_posix()
            if path != "SKILL.md":
                content = _read(file, lambda raw: raw.hex())
                executable = os.access(file, os.X_OK)
                row = {"skill_name": skill.name, "path": path, "executable": executable, "content": f"\\x{content}"}
                yield _line("skill_files", row)


def _list(file: Path, table: str) -> Iterator[bytes]:
    if not file.exists():
        return
    rows = _read(file, json.loads)
    if not isinstance(rows, list):
        raise InvalidInput(f"{str(file)!r} is no list.", field=file.name)
    for row in rows:  # pyright: ignore[reportUnknownVariableType] - any JSON value
        yield _line(table, row)


def _lines(file: Path) -> Iterator[bytes]:
    for row in _rows(file):
        kind, value = next(iter(row.items()), ("", None))
        if len(row) != 1 or kind not in _TABLES:
            raise InvalidInput(f"{str(file)!r} has a line that is none of {', '.join(_TABLES)}.", field=file.name)
        yield _line(_TABLES[kind], value)


def _rows(file: Path) -> Iterator[Row]:
    if not file.exists():
        return
    with file.open("rb") as lines:
        for number, line in enumerate(lines, start=1):
            try:
                row = json.loads(line)
            except ValueError as error:
                raise InvalidInput(f"{str(file)!r}, line {number}: {error}.", field=file.name) from error
            if not isinstance(row, dict):
                raise InvalidInput(f"{str(file)!r}, line {number} is no JSON object.", field=file.name)
            yield row


def _note(raw: bytes) -> Row:
    head, found, content = raw.decode().removeprefix("---\n").partition("\n---\n")
    if not found:
        raise ValueError("there is no second line of three dashes")
    row: Row = {"content": content}
    for line in head.split("\n"):
        name, _, value = line.partition(": ")
        if name not in NOTE_FIELDS:
            raise ValueError(f"{name!r} is none of {', '.join(NOTE_FIELDS)}")
        row[name] = json.loads(value)
    return row


def _json(file: Path) -> Row:
    value = _read(file, json.loads)
    if not isinstance(value, dict):
        raise InvalidInput(f"{str(file)!r} is no JSON object.", field=file.name)
    return value  # pyright: ignore[reportUnknownVariableType] - any JSON value


def _read(file: Path, parse: Callable[[bytes], T]) -> T:
    try:
        return parse(file.read_bytes())
    except (OSError, ValueError) as error:
        raise InvalidInput(f"{str(file)!r} cannot be read: {error}.", field=file.name) from error


def _line(table: str, row: Any) -> bytes:
    return dump({"table": table, "row": row}).encode()
