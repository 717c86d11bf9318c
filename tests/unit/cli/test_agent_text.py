"""Agents as text: a written file can be read again, and changes are shown as a diff."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.workspace.agent_text import agent_facts, agent_yaml, changed_fields, diff_lines, read_spec
from nova_workers.contracts.agents import AgentSpec
from nova_workers.contracts.http.wire import AgentView

WHOLE: dict[str, Any] = {
    "name": "Whole",
    "description": "Does all.",
    "identity": "You are: 'whole'.",
    "instructions": "First line.\n\n- a list\n# no comment\nlast",
    "responsibilities": [{"title": "Water", "content": "The plants,\non Fridays."}],
    "directories": ["/srv/data"],
    "capabilities": {"memory": {"tools": ["memory_list"]}, "self": {}, "x": {"config": {"deep": [1, None]}}},
    "skills": ["juggling"],
    "trust": "unrestricted",
    "native_tools": ["Bash", "Read"],
    "permissions": {
        "approvals": [{"tool": "mcp__*", "pattern": "*push*", "decision": "ask"}],
        "allow_commands": ["git *"],
        "deny_commands": ["rm *"],
        "ask_commands": ["make *"],
        "unlisted_commands": "ask",
    },
    "model": "opus",
    "engine": "anthropic",
    "engine_config": {"a": True},
    "max_turns": 5,
    "subagents": {"eye": {"description": "Sees.", "prompt": "See.", "tools": ["Read"], "max_turns": 3}},
    "max_tokens": 100,
    "temperature": 0.5,
    "thinking_budget_tokens": 2_000,
    "token_budget": 10_000,
    "cost_budget_usd": 0.5,
    "timeout_s": 600,
    "max_running": 3,
    "max_cost_usd_per_day": 2.5,
    "output_schema": {"type": "object"},
    "retention": {"after_days": 90, "keep": "latest"},
}


def _view(version: int = 1, **spec: Any) -> AgentView:
    now = datetime(2026, 1, 2, tzinfo=UTC)
    given = AgentSpec.model_validate({"name": "x", **spec})
    return AgentView(id="whole", version=version, spec=given, created_by="person", created_at=now, updated_at=now)


def _read(tmp_path: Path, text: str, name: str = "agent.yaml") -> dict[str, Any]:
    (tmp_path / name).write_text(text)
    return read_spec(str(tmp_path / name))


def test_a_file_that_was_written_is_read_again(tmp_path: Path) -> None:
    assert set(WHOLE) == set(AgentSpec.model_fields)
    view = _view(**WHOLE)
    spec = _read(tmp_path, agent_yaml(view))
    assert spec.pop("id") == "whole"
    assert AgentSpec.model_validate(spec) == view.spec


@example(text="a\x85b\n")
@example(text="a\u2028b\n\ufeff")
@example(text="\ufeffa\r\nb\r")
@example(text="\n  a\n\n b \n")
@example(text="\ta\n\x1bb")
@given(text=st.text(alphabet=st.characters(codec="utf-8"), max_size=60))
def test_any_text_round_trips(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.mktemp("any") / "agent.yaml"
    path.write_bytes(agent_yaml(_view(instructions=text)).encode())
    assert read_spec(str(path)).get("instructions", "") == text


def test_json_is_read_whole_or_in_the_form_of_show(tmp_path: Path) -> None:
    assert _read(tmp_path, '{"name": "x"}', "a.json") == {"name": "x"}
    assert _read(tmp_path, '{"id": "a", "version": 3, "spec": {"name": "x"}}', "a.json") == {"id": "a", "name": "x"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is not JSON"),
        ("[]", "is not a JSON object"),
        ("a: [", "is neither YAML nor JSON"),
        ("just words", "holds no configuration"),
        ("", "holds no configuration"),
        ("a: !!python/object:os.system x", "is neither YAML nor JSON"),
        ("name: a\ntrust: sandbox\n'name': b\n", r"agent\.yaml: the key 'name' is there twice, again at line 3"),
        ("name: a\ncapabilities:\n  memory: {}\n  memory: {}\n", "the key 'memory' is there twice"),
        ('{"name": "a", "capabilities": {"memory": {}, "memory": {}}}', "the key 'memory' is there twice"),
    ],
)
def test_an_invalid_configuration_is_refused_in_one_line(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        _read(tmp_path, text)
    assert "\n" not in refused.value.message


def test_the_same_key_in_two_mappings_is_no_duplicate(tmp_path: Path) -> None:
    text = "name: a\nsubagents:\n  a: &all {prompt: x, description: y}\n  b: {<<: *all, prompt: z}\n"
    assert _read(tmp_path, text)["subagents"]["b"] == {"prompt": "z", "description": "y"}


def test_all_fields_that_are_set_are_shown() -> None:
    shown = dict(agent_facts(_view(**WHOLE)))
    text = "\n".join(map(str, shown.values()))
    for part in (
        *("Does all.", "'whole'", "- a list", "on Fridays.", "/srv/data", "memory (only memory_list)", '"deep"'),
        *("juggling", "unrestricted", "ask: mcp__* where '*push*'", "git *", "rm *", "make *", "opus", "anthropic"),
        *("Sees.", "See.", "Read", "10000", "2000", "$0.5", '{"type": "object"}', "1, by person"),
    ):
        assert part in text
    assert {"duty: Water", "subagent: eye"} <= set(shown)


def test_fields_that_are_not_set_are_not_shown() -> None:
    shown = {name for name, value in agent_facts(_view()) if value}
    assert shown == {"id", "version", "name", "model", "engine", "trust", "updated"}


def test_a_diff_shows_the_changed_lines() -> None:
    before, after = _view(1, instructions="one\ntwo"), _view(2, instructions="one\nthree", model="opus")
    lines = diff_lines(before, after)
    assert lines[0].startswith("--- whole version 1\t")
    assert lines[0].endswith(" by person")
    assert [line for line in lines[3:] if line[0] in "+-"] == ["-  two", "+  three", "+model: opus"]
    assert changed_fields(before, after) == ["instructions", "model"]
    assert diff_lines(before, before) == []
