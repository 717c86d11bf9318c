"""Entry points of installed packages are those of now, without reading all packages for each look."""

from importlib import metadata
from pathlib import Path

import pytest

from nova_workers.base.entry_points import entry_points_of

_GROUP = "nova_workers.test_group"


def _install(name: str, packages: Path) -> Path:
    about = packages / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[{_GROUP}]\n{name} = {name}:made\n")
    return about


def _names() -> list[str]:
    return sorted(entry.name for entry in entry_points_of(_GROUP))


def test_packages_that_are_installed_and_removed_meanwhile_are_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _names() == []
    monkeypatch.syspath_prepend(tmp_path)
    _install("first", tmp_path)
    assert _names() == ["first"]
    second = _install("second", tmp_path)
    assert _names() == ["first", "second"]
    second.rename(tmp_path / "gone")
    assert _names() == ["first"]


def test_an_unchanged_installation_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    before = entry_points_of("console_scripts")
    assert before
    monkeypatch.setattr(metadata, "entry_points", None)
    assert entry_points_of("console_scripts") == before
