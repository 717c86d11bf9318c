"""`nova export`, `nova import` and `nova usage` on a real fleet."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import pytest
from dirty_equals import IsPartialDict

from tests.support.processes.command_line import Nova, wait_for

pytestmark = pytest.mark.fleet


def test_a_workspace_is_exported_and_read_again(nova: Nova, tmp_path: Path) -> None:
    sent = nova.good("send", "hello", "--json").lines
    thread_id = sent[0]["run"]["thread_id"]
    folder = tmp_path / "out"
    done = nova.good("export", str(folder), "--json").json
    assert done["rows"]["threads"] >= 1
    (file,) = folder.rglob(f"{thread_id}.jsonl")
    assert '"text":"hello"' in file.read_text("utf-8")
    assert folder.stat().st_mode & 0o077 == 0
    refused = nova("export", str(folder))
    assert refused.code == 1
    assert "not empty" in refused.err
    twice = nova("import", str(folder))
    assert twice.code == 1
    assert "is there already" in twice.err or "already exists" in twice.err
    merged = nova.good("import", str(folder), "--merge", "--json").json
    assert set(merged["written"].values()) == {0}
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".out")] == []


def test_a_folder_of_something_else_is_refused(nova: Nova, tmp_path: Path) -> None:
    done = nova("import", str(tmp_path))
    assert done.code == 1
    assert "not a folder of `nova export`" in done.err
    nowhere = nova("import", str(tmp_path / "nope"), NOVA_API_URL="http://127.0.0.1:9")
    assert "not a folder of `nova export`" in nowhere.err, "it fails before it connects"
    (tmp_path / "settings.json").write_text(json.dumps({"format": 1, "next_task_id": 1}))
    (tmp_path / "memories.json").write_text("{")
    done = nova("import", str(tmp_path))
    assert done.code == 1
    assert "memories.json" in done.err
    # The command left in the middle of its import. The tenant may have the next one once the API has noticed.
    wait_for(lambda: nova("export", str(tmp_path / "out")).code == 0, what="the end of the import")


def test_a_run_is_rated_found_and_reported(nova: Nova) -> None:
    run_id = nova.good("send", "hello", "--json").lines[0]["run"]["id"]
    rated = nova.good("runs", "rate", run_id, "--score", "-1", "--comment", "Not what I asked.", "--step", "1")
    assert re.fullmatch(r"fbk_\w+ on nova version \d+\n", rated.out)
    assert nova.good("runs", "list", "--rated", "down", "--json").json["items"][0]["id"] == run_id
    listed = nova.good("feedback", "--rated", "down", "--name", "rating").out
    assert "Not what I asked." in listed
    assert "-1.00" in nova.good("feedback", "report", "nova").out
    nova.good("feedback", "delete", rated.out.split()[0])
    assert nova.good("feedback", "list", "--json").json["items"] == []
    refused = nova("runs", "rate", run_id)
    assert refused.code != 0
    assert "a score, a label or a comment" in refused.err


def test_examples_are_taken_imported_exported_and_removed(nova: Nova, tmp_path: Path) -> None:
    run_id = nova.good("send", "hello", "--json").lines[0]["run"]["id"]
    nova.good("datasets", "create", "greetings", "--redact", "emails")
    assert nova.good("datasets", "take", "greetings", "--run", run_id, "--tag", "seen", "--json").json["added"] == 1
    table = tmp_path / "more.csv"
    table.write_text("input,expected,key\nWrite to ada@example.com,done,mail\n")
    imported = nova.good("datasets", "import", "greetings", str(table), "--split", "train=0.5,test=0.5")
    assert re.search(r"version\s+2", imported.out)
    assert "Write to [email]" in nova.good("datasets", "examples", "greetings").out
    copy = tmp_path / "copy.jsonl"
    nova.good("datasets", "export", "greetings", str(copy))
    nova.good("datasets", "create", "copied")
    assert nova.good("datasets", "import", "copied", str(copy), "--json").json["added"] == 2
    assert nova.good("datasets", "import", "greetings", str(copy), "--json").json["unchanged"] == 2
    nova.good("datasets", "remove", "greetings", "mail")
    (kept,) = [one for one in nova.good("datasets", "list", "--json").json["items"] if one["name"] == "greetings"]
    assert kept["examples"] == 1
    nova.good("datasets", "delete", "greetings", "copied")
    table.write_text("question\nx\n")
    assert "Name the columns input" in nova("datasets", "import", "copied", str(table)).err


def test_a_version_is_evaluated_by_a_worker_and_its_result_decides_the_exit_code(
    nova: Nova, tmp_path: Path, script: Callable[..., str]
) -> None:
    lines = [
        {"key": "good", "input": script({"say": "12 EUR"}), "expected": "12 EUR"},
        {"key": "bad", "input": script({"say": "13 EUR"}), "expected": "12 EUR"},
    ]
    file = tmp_path / "prices.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)))
    nova.good("datasets", "create", "prices")
    nova.good("datasets", "import", "prices", str(file))
    agent = ("--agent", "nova", "--version", "1", "--dataset", "prices")
    assert nova.good("evals", "run", *agent, "--dry-run", "--json").json == IsPartialDict(id=None, trials=2)
    done = nova("evals", "run", *agent, "--threshold", "0.6", "--output", "junit")
    assert done.code == 1, done.err
    suite = ElementTree.fromstring(done.out)[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("2", "1", "0")
    listed = nova.good("evals", "list", "--json").json["items"][0]
    assert listed == IsPartialDict(status="done", done=2, threshold=0.6)
    assert listed["result"]["meets_threshold"] is False
    assert "50.0%" in nova.good("evals", "show", listed["id"], "--output", "markdown").out
    assert "13 EUR" in nova.good("evals", "trials", listed["id"], "--key", "bad").out
    nova.good("evals", "run", *agent, "--threshold", "0.5")
    nova.good("evals", "delete", listed["id"])
    nova.good("fleet", "pause", "--agent", "nova")
    still = nova.good("evals", "run", *agent, "--no-wait", "--json").json["id"]
    with nova.child("evals", "wait", still) as waiting:
        waiting.notes("nova doctor")
        nova.good("evals", "cancel", still)
        assert waiting.done().code == 1
    nova.good("fleet", "resume", "--agent", "nova")
    nova.good("datasets", "delete", "prices")


def test_usage_is_drawn(nova: Nova) -> None:
    nova.good("send", "hello")
    drawn = nova.good("usage", "--by", "agent").out
    assert "█" in drawn
    assert drawn.splitlines()[-1].startswith("all")
    report = nova.good("usage", "--by", "day", "--days", "1", "--json").json
    assert report["group_by"] == "day"
    assert report["total"]["runs"] >= 1


def test_a_tenant_is_set_and_its_budgets_are_shown(nova: Nova) -> None:
    assert nova.good("tenant", "show", "--json").json["weight"] == 1
    done = nova.good("tenant", "set", "--weight", "2", "--max-cost-usd-per-day", "25", "--timezone", "Europe/Oslo")
    assert "Europe/Oslo" in done.out
    shown = nova.good("budgets")
    assert "$25.00" in shown.out
    assert re.search(r"begins at \d{4}-\d\d-\d\d 00:00:00 \(Europe/Oslo\)", shown.err), "by the tenant's clocks"
    assert nova.good("budgets", "--json").json["items"][0]["max_usd"] == 25
    back = ("--weight", "1", "--max-cost-usd-per-day", "none", "--timezone", "UTC", "--json")
    assert nova.good("tenant", "set", *back).json["max_cost_usd_per_day"] is None
    refused = nova("tenant", "set", "--work-from", "99")
    assert refused.code != 0
    assert "work_from" in refused.err
