"""The guide's how-tos name the files of a change: each of these has the example that the how-to names."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.data.documents import ROOT

_SECTION = re.compile(r"^## How to\n(.*?)(?=^## )", re.MULTILINE | re.DOTALL)
_HOW_TO = re.compile(r"^\*\*(Add [^*]+)\*\*(?: \(such as `(\w+)`)?(.*?)(?=^\*\*|\Z)", re.MULTILINE | re.DOTALL)
_PATH = re.compile(r"`([\w./]+/[\w./]*)`")
_MODULE = re.compile(r"`((?:nova_workers|api|beat|models|tests)(?:\.\w+)+)`")
_WITHOUT_EXAMPLE = {
    "Add a delivery channel": "its files are in a package of its own, with an example in docs/delivery.md",
    "Add a dependency.": "tests/contract/test_docs.py compares the files",
}
_SUFFIXES = {".py", ".md", ".html", ".yaml"}


def _section() -> str:
    section = _SECTION.search((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert section is not None
    return section[1]


def _how_tos() -> dict[str, tuple[str, list[str]]]:
    """Return the example of each how-to, and the files and folders that it names."""
    return {found[1]: (found[2], _PATH.findall(found[3])) for found in _HOW_TO.finditer(_section())}


HOW_TOS = _how_tos()


def _has(path: Path, example: str) -> bool:
    """Whether a file, or one below a folder, has the example in its name or its text."""
    files = [path] if path.is_file() else [each for each in path.rglob("*") if each.suffix in _SUFFIXES]
    return any(example in f"{each}\n{each.read_text('utf-8')}".casefold() for each in files)


def test_each_how_to_has_an_example() -> None:
    assert len(HOW_TOS) > 12
    assert {title for title, (example, _) in HOW_TOS.items() if not example} == _WITHOUT_EXAMPLE.keys()


@pytest.mark.parametrize("title", HOW_TOS.keys() - _WITHOUT_EXAMPLE.keys())
def test_each_file_that_a_how_to_names_has_its_example(title: str) -> None:
    example, named = HOW_TOS[title]
    assert named
    assert [path for path in named if not _has(ROOT / path, example)] == []


def test_each_module_that_a_how_to_names_exists() -> None:
    named = _MODULE.findall(_section())
    paths = {name: ROOT / name.replace(".", "/") for name in named}
    assert len(paths) > 5
    assert [name for name, path in paths.items() if not path.is_dir() and not path.with_suffix(".py").exists()] == []
