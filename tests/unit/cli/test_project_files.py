"""Files of a project: what is written is read as the same values."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nova_workers.cli.projects.files import read_project
from nova_workers.cli.projects.writing import agent_markdown, agent_yaml, triggers_yaml
from nova_workers.contracts.agents import AgentSpec

# What a text of the fleet may hold.
_TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), min_size=1, max_size=40)
_LINES = st.text(st.sampled_from("ab-: \t\r\n#'\"|>*&\u2028\x85"), min_size=1, max_size=40)


def _read(text: str, name: str) -> AgentSpec:
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "agents").mkdir()
        (root / "pyproject.toml").write_text('[project]\nname = "shop"\n')
        (root / "agents" / name).write_bytes(text.encode())
        project = read_project(root)
    assert project.problems == []
    [agent] = project.agents
    return AgentSpec.model_validate(agent.model_dump(include=set(AgentSpec.model_fields)))


@given(text=_TEXT | _LINES)
@example("First.\n\nThird.\n")
@example("\n")
@example("\n\n  indented\n\n")
@example("---\nname: other\n---\n")
@example("a\r\nb\r\n")
@example("1e5")
@example("09")
@example("yes")
@example("~")
@example("2026-01-02")
@example("0x1f")
def test_an_agent_s_texts_are_read_as_they_were_written(text: str) -> None:
    spec = AgentSpec(name="1e5", description=text, instructions=text, engine_config={"key": [text, 1, 1e16, None]})
    assert _read(agent_markdown(spec), "a.md") == spec
    assert _read(agent_yaml(spec), "a.yaml") == spec


@pytest.mark.parametrize(
    ("body", "instructions"),
    [
        ("", ""),
        ("Answer.", "Answer."),
        ("Answer.\n", "Answer."),
        ("\nAnswer.\n", "Answer."),
        ("\n\nAnswer.\n\n", "\nAnswer.\n"),
        ("  Answer.  \n", "  Answer.  "),
    ],
)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_instructions_end_before_the_end_of_the_last_line(body: str, instructions: str, line_end: str) -> None:
    text = f"---\nname: A\n---\n{body}".replace("\n", line_end)
    assert _read(text, "a.md").instructions == instructions.replace("\n", line_end)


@given(text=_TEXT | _LINES)
def test_a_trigger_s_texts_are_read_as_they_were_written(text: str) -> None:
    prompt = f"({text})"  # A prompt of white space is refused.
    values = {"1e5": {"agent_id": "a", "kind": "cron", "schedule": "0 9 * * 1", "prompt": prompt, "timezone": "UTC"}}
    with TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "agents").mkdir()
        (root / "pyproject.toml").write_text('[project]\nname = "shop"\n')
        (root / "triggers.yaml").write_bytes(triggers_yaml(values).encode())
        project = read_project(root)
    assert project.problems == []
    [trigger] = project.triggers
    assert (trigger.key, trigger.prompt) == ("1e5", prompt)


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("shop: {dataset: prices, evaluators: [{kind: answered}]}", None),
        (
            "other: {dataset: prices, evaluators: [{kind: answered}]}",
            "evaluations.yaml:1: other: the project has no",
        ),
        ("shop: prices", "evaluations.yaml:1: shop: an evaluation is a mapping"),
        ("shop: {dataset: prices}", "evaluations.yaml:1: evaluators: "),
        ("shop:\n  dataset: prices\n  evaluators: [{kind: number, absolute: -1}]", "evaluations.yaml:3: evaluators"),
        ("shop: {dataset: prices, evaluators: [{kind: answered}], threshold: 2}", "evaluations.yaml:1: threshold: "),
    ],
)
def test_what_an_agent_must_pass_is_checked_where_it_is_written(tmp_path: Path, line: str, problem: str | None) -> None:
    (tmp_path / "agents").mkdir()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "shop"\n')
    (tmp_path / "agents" / "shop.md").write_text("---\nname: Shop\n---\nAnswer.\n")
    (tmp_path / "evaluations.yaml").write_text(line)
    project = read_project(tmp_path)
    if problem is None:
        assert (project.problems, project.gates["shop"].threshold) == ([], 1)
    else:
        [found] = project.problems
        assert found.startswith(problem)
