"""The maps of the source in the documents: rooms, layers, tables and events, compared with the tree both ways."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import get_args

import pytest

from models import metadata
from nova_workers.contracts.events import Event
from tests.support.data.documents import ROOT

SOURCE = ("nova_workers", "api", "beat", "models", "tests", "deploy")
MOST_MODULES = 20


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the names in backticks of the first column of each row, of all tables below a heading."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert section is not None, f"{page} has no section {heading!r}"
    firsts = (line.split("|")[1] for line in section[1].splitlines() if line.startswith("| `"))
    return [re.findall(r"`([^`]+)`", first) for first in firsts]


def _names(page: str, heading: str) -> list[str]:
    return [name for row in _rows(page, heading) for name in row]


def _is_source(path: Path) -> bool:
    return (path.is_dir() and (path / "__init__.py").is_file()) or (path.suffix == ".py" and path.stem != "__init__")


def test_the_guide_lists_every_room_once() -> None:
    rooms = {
        f"nova_workers/{path.name}{'/' if path.is_dir() else ''}"
        for path in (ROOT / "nova_workers").iterdir()
        if _is_source(path)
    }
    assert sorted(_names("CONTRIBUTING.md", "Rooms")) == sorted(rooms | {"api/", "beat/", "models/"})


def test_the_architecture_lists_the_layers_in_the_order_of_import_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    inner, outer = [contract["layers"] for contract in contracts if contract["type"] == "layers"]
    assert outer[1] == "nova_workers"
    layers = [set(re.split(r"\s*[|:]\s*", layer)) for layer in (outer[0], *inner, outer[2])]
    present = [{room for room in layer if not room.startswith("(")} for layer in layers]
    assert [set(row) for row in _rows("docs/architecture.md", "Layers")] == present


def test_the_architecture_lists_every_table_once() -> None:
    assert sorted(_names("docs/architecture.md", "The ledger")) == sorted(metadata.tables)


def test_the_architecture_lists_every_live_event_once() -> None:
    union = get_args(get_args(Event)[0])
    types = [get_args(event.model_fields["type"].annotation)[0] for event in union]
    assert sorted(_names("docs/architecture.md", "Live events")) == sorted(types)


@pytest.mark.parametrize("top", SOURCE)
def test_no_folder_has_too_many_modules(top: str) -> None:
    folders = {path.parent for path in (ROOT / top).rglob("*.py")}
    # Migrations are a sequence, not rooms: each is written once and never edited.
    folders.discard(ROOT / "models" / "migrations" / "versions")
    modules = {
        str(folder.relative_to(ROOT)): sum(path.name != "__init__.py" for path in folder.glob("*.py"))
        for folder in folders
    }
    assert {folder: count for folder, count in modules.items() if count > MOST_MODULES} == {}
