"""The floors of the source: what a home may have, and that contracts of imports and names in strings still match it.

A wildcard that matches nothing, or a home that no order lists, would pass in silence; so would a name in a string that
nothing imports before it is needed.
"""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from nova_workers.broker import task_names
from tests.support.data.documents import ROOT

FLOORS = {"sql", "rules", "tools"}
HOMES = ROOT / "nova_workers" / "domain"
CONTRACTS: list[dict[str, Any]] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"][
    "contracts"
]
ROOMS = ("nova_workers", "api", "beat", "models")
ENTRY_POINTS = {
    "nova_workers.agents",
    "nova_workers.effects",
    "nova_workers.inbound_channels",
    "nova_workers.tools",
}
"""Groups of entry points, which are no modules."""
_DOTTED = re.compile(r"nova_workers(\.(?!(?:api|beat|models)\b)[a-z_]\w*)+(:[a-z_]\w*)?")
_PARTS = re.compile(r"\bpart(_name)?\(['\"]([\w.]+)['\"]\)(\}(:\w+))?")


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = frozenset(_module(path) for room in ROOMS for path in (ROOT / room).rglob("*.py"))


def _homes() -> list[Path]:
    return sorted(path for path in HOMES.iterdir() if path.is_dir() and path.name != "__pycache__")


def _floors(home: Path) -> set[str]:
    return {path.stem for path in home.iterdir() if path.name not in {"__init__.py", "__pycache__"}}


def _ordered(name: str) -> list[str]:
    """Return the modules that a contract of layers puts in order, without their container."""
    (contract,) = [each for each in CONTRACTS if each["name"] == name]
    return [module for layer in contract["layers"] for module in re.split(r"\s*[|:]\s*", layer)]


def _matches(name: str) -> bool:
    """Whether a module has a name as import-linter reads it: `*` stands for one part of it."""
    pattern = re.compile(r"[^.]+".join(map(re.escape, name.split("*"))))
    return any(pattern.fullmatch(module) for module in MODULES)


def _names(value: object) -> Iterator[str]:
    match value:
        case str():
            yield from (name for part in value.split(" -> ") for name in re.split(r"\s*[|:]\s*", part))
        case list():
            for each in value:
                yield from _names(each)
        case _:
            pass


def test_a_home_has_nothing_but_floors_and_its_package_is_empty() -> None:
    for home in _homes():
        assert (home / "__init__.py").read_text("utf-8") == "", home
        assert _floors(home), home
        assert _floors(home) <= FLOORS, home


@pytest.mark.parametrize("contract", CONTRACTS, ids=lambda contract: contract["name"])
def test_each_name_of_a_contract_of_imports_matches_modules(contract: dict[str, Any]) -> None:
    containers = contract.get("containers", [""])
    names = [
        ".".join(filter(None, (container, name)))
        for container in containers
        for name in _names(contract.get("layers", []))
    ]
    options = ("source_modules", "forbidden_modules", "protected_modules", "allowed_importers", "modules", "ancestors")
    for option in (*options, "skip_descendants", "ignore_imports"):
        names += _names(contract.get(option, []))
    assert names
    assert [name for name in names if not _matches(name)] == []


@pytest.mark.parametrize(("floor", "name"), [("rules", "The decisions of homes"), ("sql", "The statements of homes")])
def test_each_home_has_its_place_in_the_order_of_a_floor(floor: str, name: str) -> None:
    with_floor = sorted(f"{home.name}.{floor}" for home in _homes() if floor in _floors(home))
    assert sorted(_ordered(f"{name} have an order")) == with_floor


@pytest.mark.parametrize(("floor", "name"), [("rules", "The decisions of homes"), ("sql", "The statements of homes")])
def test_the_architecture_gives_the_order_of_a_floor(floor: str, name: str) -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    row = re.search(rf"^\| `{floor}` \| .*in a declared order: (.*) > the rest \|$", page, re.MULTILINE)
    assert row is not None
    (contract,) = [each for each in CONTRACTS if each["name"] == f"{name} have an order"]
    layers = [set(re.split(r"\s*\|\s*", layer.replace(f".{floor}", ""))) for layer in contract["layers"]]
    assert [set(homes.split(", ")) for homes in row[1].split(" > ")] == layers[:-1]


def _imported_by_name() -> Iterator[tuple[str, str]]:
    """Yield where the source names a module, or something in one, in a string, and the name."""
    for room in ROOMS:
        for path in sorted((ROOT / room).rglob("*.py")):
            text = path.read_text("utf-8")
            for _, name, _, attribute in _PARTS.findall(text):
                yield str(path.relative_to(ROOT)), f"{name}{attribute}"
            for node in ast.walk(ast.parse(text)) if '"nova_workers.' in text else ():
                if isinstance(node, ast.Constant) and isinstance(node.value, str) and _DOTTED.fullmatch(node.value):
                    if node.value in ENTRY_POINTS:
                        continue
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", node.value


def test_each_name_in_a_string_can_be_imported() -> None:
    named = list(_imported_by_name())
    assert len(named) > 15
    for where, name in named:
        module, _, attribute = name.partition(":")
        spec = importlib.util.find_spec(module)
        assert spec is not None, f"{where}: no module {module}"
        if attribute:
            # Not imported: an entry point of a process connects to its servers.
            assert attribute in _defined(Path(str(spec.origin))), f"{where}: {module} has no {attribute}"


def _defined(path: Path) -> set[str]:
    names = set[str]()
    for node in ast.parse(path.read_text("utf-8")).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Assign(targets=targets):
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
            case _:
                pass
    return names


def test_each_child_program_that_the_build_starts_exists() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    for script in project["scripts"].values():
        module, _, function = script.partition(":")
        assert hasattr(importlib.import_module(module), function)
    lines = [*(ROOT / "Makefile").read_text("utf-8").splitlines(), *_deployed_lines()]
    started = {name for line in lines for name in re.findall(r"python3? -m ((?:nova_workers|tests)[\w.]*)", line)}
    assert started
    assert [name for name in started if importlib.util.find_spec(name) is None] == []


def _deployed_lines() -> Iterator[str]:
    for path in sorted((ROOT / "deploy").rglob("*")):
        if path.is_file() and path.suffix in {"", ".yaml", ".yml", ".sh", ".toml", ".conf"}:
            yield from path.read_text("utf-8", errors="replace").splitlines()


def test_each_task_that_is_sent_by_name_is_registered() -> None:
    source = (ROOT / "nova_workers" / "worker" / "app.py").read_text("utf-8")
    names = [name for name in vars(task_names) if name.startswith("TASK_")]
    assert [name for name in names if f"name={name}" not in source] == []
