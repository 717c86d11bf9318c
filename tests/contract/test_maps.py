"""The maps of the source in the documents: rooms, layers, tables and events, compared with the tree both ways."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import get_args

from models.tables import metadata
from nova_workers.base.vocabulary import StopReason, words_of
from nova_workers.contracts.events import Event
from tests.requirements import proves
from tests.support.data.documents import ROOT


def _rows(page: str, heading: str) -> list[list[str]]:
    """Return the names in backticks of the first column of each row, of all tables below a heading."""
    section = re.search(rf"^## {heading}\n(.*?)(?=^## |\Z)", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    assert section is not None, f"{page} has no section {heading!r}"
    firsts = (line.split("|")[1] for line in section[1].splitlines() if line.startswith("| `"))
    return [re.findall(r"`([^`]+)`", first) for first in firsts]


def _names(page: str, heading: str) -> list[str]:
    return [name for row in _rows(page, heading) for name in row]


def _is_package(path: Path) -> bool:
    return (path / "__init__.py").is_file()


def test_the_guide_lists_every_room_once() -> None:
    rooms = {f"nova_workers/{path.name}/" for path in (ROOT / "nova_workers").iterdir() if _is_package(path)}
    homes = {path.name for path in (ROOT / "nova_workers" / "domain").iterdir() if _is_package(path)}
    assert sorted(_names("CONTRIBUTING.md", "Rooms")) == sorted({*rooms, *homes, "api/", "beat/", "models/"})


def test_the_architecture_lists_the_layers_in_the_order_of_import_linter() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    inner, outer = [contract["layers"] for contract in contracts if contract["type"] == "layers"][:2]
    assert outer[1] == "nova_workers"
    layers = [set(re.split(r"\s*\|\s*", layer)) for layer in (outer[0], *inner, outer[2])]
    rows = [set(row) for row in _rows("docs/architecture.md", "Layers")]
    assert rows == [*layers, {"tools"}, {"rules"}, {"sql"}]


def test_the_architecture_lists_every_table_once() -> None:
    assert sorted(_names("docs/architecture.md", "The ledger")) == sorted(metadata.tables)


def test_the_architecture_lists_every_live_event_once() -> None:
    union = get_args(get_args(Event)[0])
    types = [get_args(event.model_fields["type"].annotation)[0] for event in union]
    assert sorted(_names("docs/architecture.md", "Live events")) == sorted(types)


def test_the_page_of_engines_lists_every_stop_reason_once() -> None:
    section = (ROOT / "docs" / "engines.md").read_text("utf-8").partition("### Stop reasons\n")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `(\w+)`", section, re.MULTILINE) == list(words_of(StopReason))


@proves("packaging.names")
def test_api_beat_and_models_are_imported_relatively_or_found_by_name() -> None:
    """In the wheel they are in `nova_workers`, so `import api` would be another program's module, or none."""
    files = [path for top in ("api", "beat", "models", "nova_workers") for path in (ROOT / top).rglob("*.py")]
    absolute = re.compile(r"^\s*(?:from (?:api|beat|models)[. ]|import (?:api|beat|models)\b)", re.MULTILINE)
    assert [str(path.relative_to(ROOT)) for path in files if absolute.search(path.read_text(encoding="utf-8"))] == []


def test_only_faces_have_all() -> None:
    """A face is a module that passes on names of other modules; elsewhere an underscore says what is internal."""
    wrong: list[str] = []
    for top in ("nova_workers", "api", "beat", "models", "deploy", "docs", "tests"):
        for path in (ROOT / top).rglob("*.py"):
            text = "" if "node_modules" in path.parts else path.read_text("utf-8")
            if "\n__all__" not in text:
                continue
            tree = ast.parse(text)
            imported = {
                alias.asname or alias.name
                for node in ast.walk(tree)
                if isinstance(node, ast.Import | ast.ImportFrom)
                for alias in node.names
            }
            listed = text.partition("\n__all__")[2].partition("[")[2].partition("]")[0]
            if imported.isdisjoint(re.findall(r"\w+", listed)):
                wrong.append(str(path.relative_to(ROOT)))
    assert wrong == []
