"""`nova agents` on a real fleet: history, differences, files."""

import json
from pathlib import Path

import pytest
import yaml

from tests.support.processes.command_line import Nova

pytestmark = pytest.mark.fleet

FILE = """
name: Filed
instructions: |
  First.
  Second.
trust: unrestricted
max_tokens: 500
cost_budget_usd: 0.25
permissions:
  approvals:
    - {tool: "mcp__*", decision: ask}
  deny_commands: ["curl *"]
subagents:
  eye: {description: Sees., prompt: See.}
output_schema: {type: object}
"""


def test_an_agent_is_created_from_a_file_and_written_back(nova: Nova, tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text(FILE)
    made = nova.good("agents", "create", "filed", "-f", str(path), "--json").json
    assert made["spec"]["permissions"]["approvals"][0]["tool"] == "mcp__*"
    assert made["spec"]["cost_budget_usd"] == 0.25
    written = nova.good("agents", "show", "filed", "--yaml").out
    assert yaml.safe_load(written) == {"id": "filed", **yaml.safe_load(FILE)} | {
        "permissions": {
            "approvals": [{"tool": "mcp__*", "decision": "ask"}],
            "deny_commands": ["curl *"],
        },
        "subagents": {"eye": {"description": "Sees.", "prompt": "See."}},
    }
    path.write_text(written)
    assert nova.good("agents", "edit", "filed", "-f", str(path), "--json").json["version"] == 1, "nothing changed"
    path.write_text(written.replace("Second.", "Third."))
    assert nova.good("agents", "edit", "filed", "-f", str(path), "--json").json["version"] == 2
    shown = nova.good("agents", "show", "filed").out
    for part in ("ask: mcp__*", "curl *", "$0.25", "500", "Third.", "Sees.", '{"type": "object"}', "2, by person"):
        assert part in shown
    assert "Second." in nova.good("agents", "show", "filed", "--version", "1").out


def test_history_shows_authors_and_fields_and_diff_the_changes(nova: Nova) -> None:
    nova.good("agents", "create", "told", "--name", "Told", "--instructions", "one")
    nova.good("agents", "edit", "told", "--instructions", "two", "--model", "opus")
    nova.good("agents", "edit", "told", "--trust", "controlled")
    rows = [line.split() for line in nova.good("agents", "history", "told").out.splitlines()[1:]]
    assert [(row[0], row[3], " ".join(row[4:])) for row in rows] == [
        ("3", "person", "trust"),
        ("2", "person", "instructions, model"),
        ("1", "person", ""),
    ]
    (newest,) = nova.good("agents", "history", "told", "-n", "1").out.splitlines()[1:]
    assert newest.split()[-1] == "trust"
    assert [view["version"] for view in nova.good("agents", "history", "told", "--json").json["items"]] == [3, 2, 1]
    lines = nova.good("agents", "diff", "told", "1", "2").out.splitlines()
    assert lines[0].startswith("--- told version 1")
    assert {"-instructions: one", "+instructions: two", "+model: opus"} <= set(lines)
    to_newest = nova.good("agents", "diff", "told", "2", "--json").json
    assert (to_newest["from"], to_newest["to"]) == (2, 3)
    assert "+trust: controlled" in to_newest["diff"]
    same = nova.good("agents", "diff", "told", "2", "2")
    assert (same.out, "are the same" in same.err) == ("", True)
    missing = nova("agents", "diff", "told", "9")
    assert missing.code == 1
    assert "no version 9" in missing.err


def test_a_change_for_another_version_is_refused(nova: Nova) -> None:
    nova.good("agents", "create", "guarded", "--name", "Guarded")
    nova.good("agents", "edit", "guarded", "--model", "opus", "--if-version", "1")
    late = nova("agents", "edit", "guarded", "--model", "haiku", "--if-version", "1")
    assert late.code == 1
    assert "at version 2 and not at 1" in late.err
    whole = nova("agents", "edit", "guarded", "-f", "-", "--if-version", "1", stdin=json.dumps({"name": "x"}))
    assert "at version 2 and not at 1" in whole.err
    assert nova.good("agents", "show", "guarded", "--json").json["spec"]["model"] == "opus"


def test_a_malformed_file_is_refused_with_its_field(nova: Nova) -> None:
    text = "name: x\nresponsibilities:\n  - {title: a, content: x}\n  - {title: A, content: y}\n"
    done = nova("agents", "create", "broken", "-f", "-", stdin=text)
    assert done.code == 1
    assert "responsibilities.1.title" in done.err
    assert nova("agents", "show", "broken").code == 1


def test_grants_are_added_changed_and_revoked_one_by_one(nova: Nova, tmp_path: Path) -> None:
    path = tmp_path / "agent.yaml"
    path.write_text("name: Granted\ncapabilities:\n  self: {}\n  agents: {config: {may_ask: [nova]}}\n")
    made = nova.good("agents", "create", "granted", "-f", str(path), "--capability", "memory=memory_list", "--json")
    assert set(made.json["spec"]["capabilities"]) == {"self", "agents", "memory"}
    added = nova.good("agents", "edit", "granted", "--capability", "notes", "--capability", "memory", "--json").json
    grants = added["spec"]["capabilities"]
    assert set(grants) == {"self", "agents", "memory", "notes"}
    assert grants["memory"]["tools"] is None
    narrowed = nova.good("agents", "edit", "granted", "--capability", "agents=ask_agent", "--json").json
    assert narrowed["spec"]["capabilities"]["agents"] == {"tools": ["ask_agent"], "config": {"may_ask": ["nova"]}}
    less = nova.good("agents", "edit", "granted", "--revoke", "notes", "--revoke", "memory", "--json").json
    assert set(less["spec"]["capabilities"]) == {"self", "agents"}
    refused = nova("agents", "edit", "granted", "--revoke", "notes")
    assert refused.code == 1
    assert "--revoke 'notes': it has no capability and no skill of that name." in refused.err
    same = nova.good("agents", "edit", "granted", "--capability", "self", "--json").json
    assert same["version"] == less["version"]


def test_skills_are_added_and_revoked_one_by_one(nova: Nova, tmp_path: Path) -> None:
    for name in ("sing", "dance"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "SKILL.md").write_text(f"---\nname: {name}\ndescription: How to {name}.\n---\n{name}\n")
        nova.good("skills", "add", str(tmp_path / name))
    nova.good("agents", "create", "skilled", "--name", "Skilled", "--skill", "sing")
    assert nova.good("agents", "edit", "skilled", "--skill", "dance", "--json").json["spec"]["skills"] == [
        "sing",
        "dance",
    ]
    assert nova.good("agents", "edit", "skilled", "--revoke", "sing", "--json").json["spec"]["skills"] == ["dance"]


def test_capabilities_are_listed_with_their_tools(nova: Nova) -> None:
    [line] = [line for line in nova.good("capabilities").out.splitlines() if line.startswith("memory ")]
    assert "memory_save" in line
    shown = nova.good("capabilities", "memory").out
    assert "what it does" in shown
    [line] = [line for line in shown.splitlines() if line.startswith("memory_list ")]
    assert "limit (integer, optional)" in line
    assert "content (string)" in shown
    assert {each["name"] for each in nova.good("capabilities", "--json").json} > {"memory", "agents"}
    assert "`nova capabilities` lists them" in nova("capabilities", "nonsense").err


def test_an_agent_is_renamed(nova: Nova) -> None:
    nova.good("agents", "create", "first", "--name", "First")
    assert nova.good("agents", "rename", "first", "second").out == "renamed first to second\n"
    (newest, _) = nova.good("agents", "history", "second").out.splitlines()[1:]
    assert newest.endswith("id (was first)")
    refused = nova("agents", "show", "first")
    assert refused.code != 0
    assert "was renamed to 'second'" in refused.err
    view = nova.good("agents", "rename", "second", "first", "--if-version", "2", "--json").json
    assert (view["id"], view["state"]) == ("first", "done")
