"""Models that programs know are found, and added to what a person wrote without a change to it."""

from __future__ import annotations

import asyncio
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.domain.orchestrations.rules.config.parsing import parse_config
from nova_workers.domain.orchestrations.rules.config.values import ResolvedModel
from nova_workers.domain.orchestrations.rules.models import programs
from nova_workers.domain.orchestrations.rules.models.programs import (
    DiscoveredModel,
    discover_models,
    merge_models,
    update_programs,
)
from tests.requirements import proves

KNOWN = {"claude-opus-5": ResolvedModel(provider="claude", model_id="claude-opus-5")}
NEW = (
    DiscoveredModel("claude", "claude-opus-6"),
    DiscoveredModel("claude", "claude-opus-6-20270101"),
    DiscoveredModel("claude", "claude-opus-5"),
    DiscoveredModel("claude", "claude-opus-4-1"),
    DiscoveredModel("codex", "gpt-7-nano"),
)
NOW = datetime.now(UTC)


class Machine:
    """A machine with programs that are scripts."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        self.environ = {"PATH": f"{self.bin}:/usr/bin:/bin", "HOME": str(root)}

    def program(self, name: str, text: str) -> None:
        """Install a program."""
        (self.bin / name).write_text(text)
        (self.bin / name).chmod(0o755)

    def file(self, path: str, text: str) -> None:
        """Write a file below the machine's root."""
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    monkeypatch.setattr(programs, "_bundled_claude", lambda: None)
    return Machine(tmp_path)


async def test_each_program_is_asked_in_its_own_way(machine: Machine) -> None:
    slugs: list[dict[str, Any]] = [
        {"slug": "gpt-7-sol", "visibility": "list", "supported_reasoning_levels": [{"effort": "high"}]},
        {"slug": "gpt-7-secret", "visibility": "hide"},
        {"visibility": "list"},
    ]
    machine.file(".codex/models_cache.json", json.dumps({"models": slugs}))
    machine.program("npm", f"#!/bin/sh\necho {machine.root}/modules\n")
    machine.file(
        "modules/@google/gemini-cli/node_modules/@google/gemini-cli-core/dist/src/config/models.js",
        "export const PRO = 'gemini-5-pro';\nnew Set([PRO, \"gemini-5-flash-lite\", 'gemini-embedding-001',"
        " 'gemini-5-flash-tts']);",
    )
    ids = "claude-opus-6 claude-sonnet-6-1-20270101 claude-3-opus-20240229 claude-opus-6-v1 claude-haiku-6@20270101"
    machine.program("claude", f"{'x' * 9_000_000}{ids}{'y' * 100} claude-instant-1 claude-opus-6-20270101-v1:0")
    found = await discover_models(machine.environ, NOW)
    assert [(each.provider, each.model_id) for each in found.models] == [
        ("claude", "claude-opus-6"),
        ("claude", "claude-sonnet-6-1-20270101"),
        ("codex", "gpt-7-sol"),
        ("gemini", "gemini-5-flash-lite"),
        ("gemini", "gemini-5-pro"),
    ]
    assert found.notes == ()


@proves("orchestration.discovery")
async def test_a_program_that_is_missing_broken_or_hangs_is_a_note(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await discover_models({**machine.environ, "PATH": str(machine.bin)}, NOW)
    assert found.models == ()
    assert [note.partition(":")[0] for note in found.notes] == ["codex", "gemini", "claude"]
    machine.file(".codex/models_cache.json", "{")
    machine.program("npm", "#!/bin/sh\nsleep 600\n")
    monkeypatch.setattr(programs, "_QUICK_S", 0.3)
    async with asyncio.timeout(60):
        found = await discover_models(machine.environ, NOW)
    assert "took more than 0.3 s" in found.notes[1]
    machine.file(".codex/models_cache.json", "[1]")
    assert "no list of models" in (await discover_models(machine.environ, NOW)).notes[0]


def codex_list(*slugs: str) -> str:
    return json.dumps({"models": [{"slug": slug, "visibility": "list"} for slug in slugs]})


def aged_list(machine: Machine, age: timedelta, *slugs: str) -> None:
    """Write Codex's cache as it was left some time ago."""
    machine.file(".codex/models_cache.json", codex_list(*slugs))
    written_s = (NOW - age).timestamp()
    os.utime(machine.root / ".codex/models_cache.json", (written_s, written_s))


async def codex_models(machine: Machine) -> list[str]:
    found = await discover_models(machine.environ, NOW)
    return [each.model_id for each in found.models if each.provider == "codex"]


@proves("orchestration.discovery")
async def test_codex_renews_its_list_of_models_after_a_day(machine: Machine) -> None:
    cache = machine.root / ".codex/models_cache.json"
    machine.program("codex", f"#!/bin/sh\n[ \"$*\" = 'debug models' ] && echo '{codex_list('gpt-9')}' > {cache}\n")
    aged_list(machine, timedelta(hours=23), "gpt-8")
    assert await codex_models(machine) == ["gpt-8"], "the list is fresh: the program is not started"
    aged_list(machine, timedelta(hours=25), "gpt-8")
    assert await codex_models(machine) == ["gpt-9"]
    cache.unlink()
    assert await codex_models(machine) == ["gpt-9"], "a list that is missing is made"


async def test_an_old_list_counts_where_codex_does_not_renew_it(machine: Machine) -> None:
    aged_list(machine, timedelta(hours=25), "gpt-8")
    assert await codex_models(machine) == ["gpt-8"], "there is no program"
    machine.program("codex", "#!/bin/sh\nexit 2\n")
    found = await discover_models(machine.environ, NOW)
    assert "gpt-8" in [each.model_id for each in found.models]
    assert found.notes[0] == "codex: its list of models is old and was not renewed: codex debug models ended with 2"


async def test_only_installed_programs_are_updated(machine: Machine) -> None:
    machine.program("claude", "#!/bin/sh\nexit 3\n")
    assert await update_programs({**machine.environ, "PATH": f"{machine.bin}"}) == [
        "claude: claude update ended with 3"
    ]


def test_new_models_get_an_alias_and_a_capability() -> None:
    merged = merge_models("", NEW, known=KNOWN)
    assert [model.model_id for model in merged.added] == ["claude-opus-6", "gpt-7-nano"]
    config = parse_config("", merged.text, known=KNOWN)
    assert config.model("opus-6") == ResolvedModel(provider="claude", model_id="claude-opus-6")
    assert config.model_registry["gpt-7-nano"].tier == "economy"
    assert config.model_registry["claude-opus-6"].affinities["coding"] == 0.91
    assert merge_models(merged.text, NEW, known=KNOWN).added == (), "a second time adds nothing"


@proves("orchestration.discovery")
@pytest.mark.parametrize(
    "text",
    [
        "# Mine.\nmodels:\n  # The best.\n  best: claude-opus-5  # for now\nmodel_registry:\n"
        "    gpt-7-nano: {provider: codex}\n",
        "models: {best: claude-opus-5}\n",
        "models: {}\nmodel_registry:\n",
        "{models: {best: claude-opus-5}}",
        "{}",
        "model_registry: # none yet\n# the end",
        "---\nmodels:\n    opus-6: claude-opus-5\n",
    ],
)
def test_what_a_person_wrote_stays(text: str) -> None:
    before = parse_config("", text, known=KNOWN)
    merged = merge_models(text, NEW, known=KNOWN)
    after = parse_config("", merged.text, known=KNOWN)
    assert merged.added
    assert {name: after.models[name] for name in before.models} == before.models
    assert {name: after.model_registry[name] for name in before.model_registry} == before.model_registry
    for model in merged.added:
        assert after.model(model.model_id).provider == model.provider
    for line in text.splitlines():
        if "#" in line:
            assert line.partition("#")[2] in merged.text


def test_a_file_with_errors_is_left_alone() -> None:
    assert merge_models("models: [", NEW, known=KNOWN).text == "models: ["


NAMES = st.sampled_from(["opus-6", "best", "claude-opus-6", "gpt-7-nano", "no", "7"])


@given(
    st.dictionaries(NAMES, st.fixed_dictionaries({"provider": st.just("claude"), "model_id": st.just("x-1")})),
    st.dictionaries(NAMES, st.fixed_dictionaries({"provider": st.just("codex"), "cost_factor": st.just(3)})),
    st.booleans(),
)
def test_merging_changes_nothing_and_ends(models: dict[str, Any], registry: dict[str, Any], indented: bool) -> None:
    text = json.dumps({"models": models, "model_registry": registry}, indent=2 if indented else None)
    before = parse_config("", text, known=KNOWN)
    merged = merge_models(text, NEW, known=KNOWN)
    after = parse_config("", merged.text, known=KNOWN)
    assert {name: after.models[name] for name in models} == {name: before.models[name] for name in models}
    assert {name: after.model_registry[name] for name in registry} == before.model_registry
    again = merge_models(merged.text, NEW, known=KNOWN)
    assert (again.text, again.added) == (merged.text, ())
