"""`nova init`, `nova plan`, `nova apply` and `nova pull`, against a real fleet."""

from __future__ import annotations

import asyncio
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from nova_workers.cli.projects.commands import EXIT_PENDING
from nova_workers.cli.projects.dev import tool_stamps, watch
from nova_workers.cli.terminal.output import Output
from tests.support.processes.command_line import Nova
from tests.support.waiting import stays, until


@pytest.fixture
def root(nova: Nova, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Iterator[Path]:
    """A new project, in a directory of its own, with names of its own. It is the current directory."""
    monkeypatch.chdir(tmp_path)
    nova.good("init", "shop")
    root = tmp_path / "shop"
    monkeypatch.chdir(root)
    yield root
    nova.good("apply", "--prune", "--on-drift", "overwrite", "--yes", "-C", str(emptied(root)))


def emptied(root: Path) -> Path:
    """Return the project without its items."""
    for folder in ("agents", "skills"):
        for path in sorted((root / folder).rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
    (root / "triggers.yaml").unlink(missing_ok=True)
    return root


def test_a_new_project_is_planned_and_applied_as_it_is(nova: Nova, root: Path) -> None:
    planned = nova("plan", "--check")
    assert planned.code == EXIT_PENDING
    assert planned.out.splitlines()[:3] == ["+ agent    assistant", "+ skill    style", "+ trigger  weekly-summary"]
    assert planned.out.endswith("shop: 3 to make; 0 unchanged.\n")
    asked = nova("apply")
    assert (asked.code, "Give --yes" in asked.err) == (1, True)
    applied = nova.good("apply", "--yes")
    assert applied.out.endswith("shop: 3 made; 0 unchanged.\n")
    assert nova.good("agents", "show", "assistant", "--json").json["spec"]["skills"] == ["style"]
    [trigger] = nova.good("triggers", "list", "--agent", "assistant", "--json").json["items"]
    assert (trigger["schedule"], trigger["enabled"]) == ("0 9 * * 1", False)
    again = nova.good("plan", "--check")
    assert again.out == "shop: nothing to do, 3 items as the project has them.\n"
    assert nova.good("apply", "--yes", "--json").json["steps"] == []


def test_a_change_is_shown_as_a_difference_and_drift_is_taken_over(nova: Nova, root: Path) -> None:
    nova.good("apply", "--yes")
    agent = root / "agents" / "assistant.md"
    agent.write_text(agent.read_text().replace("in a few sentences", "briefly").replace("Assistant", "Helper"))
    shown = nova.good("plan").out
    assert 'name: "Assistant" → "Helper"' in shown
    assert "briefly" in shown

    nova.good("agents", "edit", "assistant", "--description", "Changed by hand.")
    refused = nova("apply", "--yes")
    assert refused.code == 1
    assert "changed on the fleet" in refused.out
    assert "--on-drift" in refused.err
    nova.good("apply", "--yes", "--on-drift", "keep")
    pulled = nova.good("pull")
    assert pulled.out == "wrote agents/assistant.md\n"
    text = agent.read_text()
    assert "description: Changed by hand." in text
    assert "name: Helper" in text
    assert text.rstrip().endswith("Keep what will be needed again in a note.")
    assert nova.good("plan").out.startswith("shop: nothing to do")
    assert nova.good("pull").out.startswith("Nothing to write")


def test_everything_of_a_tenant_is_pulled_into_a_project_that_applies_unchanged(nova: Nova, root: Path) -> None:
    written = nova.good("pull", "--all", "--json").json["written"]
    assert "agents/nova.md" in written
    planned = nova("plan", "--json").json
    assert [step for step in planned["steps"] if step["fields"]] == []
    assert planned["refused"] is False
    # What belongs to all tests of this fleet does not stay with this project.
    for name in written:
        if name.startswith("agents/"):
            (root / name).unlink()


@pytest.mark.parametrize(
    ("file", "text", "place"),
    [
        ("agents/assistant.md", "---\nname: A\ntrsut: sandbox\n---\n", "agents/assistant.md:3: trsut"),
        ("agents/assistant.md", "---\nname: A\nname: B\n---\n", "agents/assistant.md:3: 'name' is"),
        ("agents/assistant.md", "Answer.", "agents/assistant.md:1: it begins with front matter"),
        ("agents/other.yaml", "description: x\n", "agents/other.yaml:1: name"),
        (
            "agents/other.yaml",
            "name: O\nresponsibilities:\n  - title: ''\n    content: c\n",
            "agents/other.yaml:3: resp",
        ),
        ("agents/other.yaml", "name: O\nid: else\n", "agents/other.yaml:2: id: leave it out"),
        ("agents/other.yaml", "name: [\n", "agents/other.yaml:2: "),
        ("agents/Other.yaml", "name: O\n", "agents/Other.yaml:1: id"),
        ("triggers.yaml", "x:\n  schedule: */5 * * * *\n", "triggers.yaml:2: "),
        ("triggers.yaml", "x: [1]\n", "triggers.yaml:1: x: a trigger is a mapping"),
        ("triggers.yaml", "x:\n  agent_id: assistant\n  kind: cron\n  prompt: p\n", "triggers.yaml:1: schedule"),
        ("skills/style/SKILL.md", "no", "skills/style/SKILL.md:1: "),
        ("pyproject.toml", "[project]\nname = 'A b'\n", "pyproject.toml: the project's name is 'A b'"),
        # Known to the fleet only.
        (
            "agents/assistant.md",
            "---\nname: A\n\nengine: none-such\n---\n",
            "agents/assistant.md:4: agents.assistant.engine",
        ),
        (
            "triggers.yaml",
            "x:\n  agent_id: assistant\n  kind: cron\n  prompt: p\n  schedule: never\n",
            "triggers.yaml:5: triggers.x.schedule",
        ),
    ],
)
def test_a_mistake_is_reported_with_its_file_and_line_and_nothing_is_applied(
    nova: Nova, root: Path, file: str, text: str, place: str
) -> None:
    kept = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    (root / file).write_text(text)
    for command in ("plan", "apply"):
        done = nova(command, "--json")
        assert done.code == 1
        assert done.err.splitlines()[0].removeprefix("nova: ").startswith(place), done.err
    for path in root.rglob("*"):
        if path.is_file() and path not in kept:
            path.unlink()
    for path, content in kept.items():
        path.write_bytes(content)
    assert nova.good("plan", "--json").json["unchanged"] == 0


def test_all_mistakes_are_reported_at_once(nova: Nova, root: Path) -> None:
    (root / "agents" / "a.yaml").write_text("label: A\n")
    (root / "agents" / "b.yaml").write_text("name: B\ntrust: all\nmax_turns: 0\n")
    done = nova("plan")
    assert [line.removeprefix("nova: ").split(": ")[0] for line in done.err.splitlines()] == [
        "agents/a.yaml:1",
        "agents/a.yaml:1",
        "agents/b.yaml:2",
        "agents/b.yaml:3",
    ]
    for name in ("a", "b"):
        (root / "agents" / f"{name}.yaml").unlink()


def test_a_directory_in_no_project_and_a_name_that_cannot_be_are_refused(
    nova: Nova, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert "nova init" in nova("plan").err
    assert nova("init", "A b").code == 1
    (tmp_path / "there").mkdir()
    assert "exists already" in nova("init", "there").err
    assert json.loads(nova.good("init", "made", "--json").out)["files"][0] == "pyproject.toml"


def test_each_change_of_a_file_is_applied_mistakes_are_shown_and_a_tool_ends_the_watch(
    nova: Nova, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NOVA_HOME", nova.env["NOVA_HOME"])
    out, err = io.StringIO(), io.StringIO()
    agent = root / "agents" / "assistant.md"
    text = agent.read_text()

    async def edit() -> None:
        watching = asyncio.create_task(
            watch(
                root,
                Output(json_mode=False, stdout=out, stderr=err),
                tool_stamps(root),
                api_url=nova.env["NOVA_API_URL"],
                api_key=nova.env["NOVA_API_KEY"],
            )
        )
        await until(lambda: "3 made" in out.getvalue())
        agent.write_text(text.replace("name: Assistant", "label: Assistant"))
        await until(lambda: "project: agents/assistant.md:3: label" in err.getvalue())
        agent.write_text(text.replace("name: Assistant", "name: Helper"))
        await until(lambda: '"Assistant" → "Helper"' in out.getvalue())
        assert not watching.done()
        (root / "tools" / "shop.py").write_text("")
        await asyncio.wait_for(watching, 30)

    asyncio.run(edit())
    assert nova.good("agents", "show", "assistant", "--json").json["spec"]["name"] == "Helper"


def test_a_fleet_that_has_not_written_its_address_is_waited_for(
    nova: Nova, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.setenv("NOVA_HOME", str(home))
    # Any free port: the URL of the settings is none that can be asked.
    monkeypatch.setenv("NOVA_API__PORT", "0")
    (home / "api_key").write_text(nova.env["NOVA_API_KEY"])
    out, err = io.StringIO(), io.StringIO()

    async def start() -> None:
        output = Output(json_mode=False, stdout=out, stderr=err)
        watching = asyncio.create_task(watch(root, output, tool_stamps(root)))
        await stays(lambda: not out.getvalue() and not err.getvalue(), for_s=0.5)
        (home / "nova.json").write_text(json.dumps({"api_url": nova.env["NOVA_API_URL"]}))
        await until(lambda: "3 made" in out.getvalue())
        watching.cancel()

    asyncio.run(start())
