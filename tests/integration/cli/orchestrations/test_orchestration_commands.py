"""`nova orchestrations` on a real fleet."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import pytest

from tests.support.processes.command_line import Nova

pytestmark = pytest.mark.fleet


@pytest.fixture(autouse=True)
def restored(nova: Nova, tmp_path: Path) -> Generator[None]:
    """Other tests of this fleet start orchestrations with the defaults."""
    yield
    file = tmp_path / "defaults.yaml"
    file.write_text("defaults: {}\n")
    nova.good("orchestrations", "config", "set", str(file))


def test_a_file_is_checked_without_a_fleet(nova: Nova, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("defaults: {model: fast}\nexperts:\n  reviewer: {system_prompt: Review., model: opus}\n")
    (tmp_path / "models.yaml").write_text("models: {fast: haiku}\n")
    nowhere = {"NOVA_API_URL": "http://127.0.0.1:9"}
    checked = nova.good("orchestrations", "config", "check", str(file), **nowhere)
    assert "fast (claude claude-haiku" in checked.out
    assert (
        nova.good("orchestrations", "config", "check", str(file), "--json").json["models"]["fast"]["provider"]
        == "claude"
    )
    file.write_text("defaults: {model: fst, modle: 1}\n")
    refused = nova("orchestrations", "config", "check", str(file), **nowhere)
    assert refused.code == 1
    assert f"{file}:1:19: defaults.model: there is no model or alias 'fst'; did you mean 'fast'?" in refused.err
    assert f"{file}:1:24: defaults.modle: there is no such field; did you mean 'model'?" in refused.err


def test_a_configuration_is_set_and_shown_again(nova: Nova, tmp_path: Path) -> None:
    file, beside = tmp_path / "mine.yaml", tmp_path / "models.yaml"
    file.write_text("# Mine.\nengine: {max_agent_depth: 2}\n")
    beside.write_text("models: {fast: haiku}\n")
    first = nova.good("orchestrations", "config", "set", str(file), "--json").json
    assert nova.good("orchestrations", "config", "show").out == file.read_text()
    beside.unlink()
    file.write_text("defaults: {model: fast}\n")
    assert nova.good("orchestrations", "config", "set", str(file)).out == f"version {first['version'] + 1}\n"
    assert nova.good("orchestrations", "config", "show", "--models").out == "models: {fast: haiku}\n", "it stays"
    earlier = nova.good("orchestrations", "config", "show", "--version", str(first["version"]), "--json").json
    assert earlier == first
    late = nova("orchestrations", "config", "set", str(file), "--if-version", str(first["version"]))
    assert late.code == 1
    assert "Read it again" in late.err
    listed = nova.good("orchestrations", "config", "versions", "--json").json["items"]
    assert [each["version"] for each in listed][:2] == [first["version"] + 1, first["version"]]


def test_models_are_listed_with_their_scores(nova: Nova) -> None:
    drawn = nova.good("orchestrations", "models", "list", "--category", "coding", "--all").out
    line = next(line for line in drawn.splitlines() if line.startswith("claude/claude-opus-5-5 "))
    assert "frontier" in line
    assert "█" in line
    assert "opus" in line.split()
    assert drawn.splitlines()[0].split()[:2] == ["model", "tier"]
    everything = nova.good("orchestrations", "models", "list", "--json").json["items"]
    assert len(everything) == len(drawn.splitlines()) - 1
    assert "tried" in nova.good("orchestrations", "models").err


def test_discovered_models_are_written_and_saved(nova: Nova, tmp_path: Path) -> None:
    (tmp_path / "models_cache.json").write_text('{"models": [{"slug": "gpt-77-sol", "visibility": "list"}]}')
    machine = {"CODEX_HOME": str(tmp_path)}
    beside = tmp_path / "models.yaml"
    beside.write_text("# Mine.\nmodels: {best: opus}\n")
    found = nova.good("orchestrations", "models", "discover", "--write", str(beside), "--json", **machine).json
    assert {"provider": "codex", "model_id": "gpt-77-sol", "new": True} in found["models"]
    assert beside.read_text().startswith("# Mine.\nmodels: {gpt-77-sol: ")
    drawn = nova.good("orchestrations", "models", "discover", "--save", **machine)
    assert "gpt-77-sol" in drawn.out
    assert "gpt-77-sol" in nova.good("orchestrations", "config", "show", "--models").out
    again = nova.good("orchestrations", "models", "discover", "--save", "--json", **machine).json
    assert all(not model["new"] for model in again["models"])
