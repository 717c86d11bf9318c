"""`nova skills` and `nova triggers`, against a real fleet."""

import re
from pathlib import Path

from tests.support.processes.command_line import Nova

SKILL_MD = "---\nname: rhyme\ndescription: Greets people in rhyme.\n---\r\nAlways greet in rhyme.\n"


def skill(tmp_path: Path) -> Path:
    root = tmp_path / "library" / "rhyme"
    (root / "scripts").mkdir(parents=True)
    (root / "SKILL.md").write_bytes(SKILL_MD.encode())
    (root / "scripts" / "run.sh").write_text("#!/bin/sh\n")
    (root / "scripts" / "run.sh").chmod(0o755)
    (root / "logo.png").write_bytes(bytes(range(256)))
    (root / ".git").mkdir()
    (root / "scripts" / "__pycache__").mkdir()
    return root


def test_a_skill_comes_back_as_it_was_added(nova: Nova, tmp_path: Path) -> None:
    root = skill(tmp_path)
    added = nova.good("skills", "add", str(root))
    assert added.out == "added rhyme with 2 files\n"
    assert sorted(added.err.splitlines()) == ["passed over: .git", "passed over: scripts/__pycache__"]
    assert "Greets people in rhyme." in nova.good("skills", "list").out
    shown = nova.good("skills", "show", "rhyme").out
    assert "scripts/run.sh (10 bytes)" in shown
    assert "Always greet in rhyme." in shown
    assert nova.good("skills", "show", "rhyme", "--json").json["skill_md"] == SKILL_MD
    copy = tmp_path / "copy"
    assert nova.good("skills", "get", "rhyme", str(copy)).out == f"wrote {copy / 'rhyme'}\n"
    for name in ("SKILL.md", "scripts/run.sh", "logo.png"):
        assert (copy / "rhyme" / name).read_bytes() == (root / name).read_bytes()
    assert (copy / "rhyme" / "scripts" / "run.sh").stat().st_mode & 0o100
    assert not (copy / "rhyme" / "logo.png").stat().st_mode & 0o100
    again = nova("skills", "get", "rhyme", str(copy))
    assert again.code == 1
    assert "is there already" in again.err
    assert nova.good("skills", "delete", "rhyme").out == "deleted rhyme\n"
    assert nova("skills", "show", "rhyme").code == 1


def test_a_directory_that_is_no_skill_is_refused_with_the_file_named(nova: Nova, tmp_path: Path) -> None:
    root = skill(tmp_path)
    (root / "passwd").symlink_to("/etc/passwd")
    done = nova("skills", "add", str(root))
    assert done.code == 1
    assert "'passwd' is a symbolic link" in done.err
    (root / "passwd").unlink()
    (root / "big.bin").write_bytes(b"x" * 1_048_577)
    assert "'big.bin' cannot be part of a skill" in nova("skills", "add", str(root)).err
    other = root.rename(root.with_name("poem"))
    assert "but its directory is called 'poem'" in nova("skills", "add", str(other)).err
    (other / "SKILL.md").write_text("no front matter")
    assert "begins with front matter" in nova("skills", "add", str(other)).err
    assert "cannot be read" in nova("skills", "add", str(tmp_path / "nowhere")).err


def test_a_trigger_is_created_shown_changed_and_deleted(nova: Nova) -> None:
    options = ("--cron", "30 9 * * mon-fri", "--timezone", "Asia/Kathmandu", "--title", "News")
    made = nova.good("triggers", "create", "nova", "Read the news.", *options, "--json").json
    trigger_id = made["id"]
    assert (made["kind"], made["schedule"], made["created_by"]) == ("cron", "30 9 * * mon-fri", "person")
    shown = nova.good("triggers", "show", trigger_id).out
    assert "09:30:00+05:45" in shown
    assert "Read the news." in shown
    assert trigger_id in nova.good("triggers", "list", "--agent", "nova").out
    preview = nova.good("triggers", "preview", trigger_id, "--count", "2").out.splitlines()
    assert len(preview) == 2
    assert all(line.endswith(" 09:30:00+05:45") for line in preview)
    listed = nova.good("triggers", "list").out
    assert re.search(rf"{trigger_id} +nova +cron 30 9 \* \* mon-fri +\d{{4}}-\d\d-\d\d \d\d:", listed)
    assert nova.good("triggers", "off", trigger_id, "--json").json["enabled"] is False
    assert re.search(rf"{trigger_id} .* off +News", nova.good("triggers", "list").out)
    assert nova.good("triggers", "on", trigger_id, "--json").json["enabled"] is True
    changed = nova.good("triggers", "edit", trigger_id, "--every", "3600", "--title", "", "--json").json
    assert (changed["kind"], changed["schedule"], changed["title"]) == ("every", "3600", None)
    assert nova.good("triggers", "delete", trigger_id).out == f"deleted {trigger_id}\n"
    assert nova("triggers", "show", trigger_id).code == 1


def test_an_invalid_trigger_is_refused(nova: Nova) -> None:
    assert "Say when" in nova("triggers", "create", "nova", "Hello").err
    assert "Give one of" in nova("triggers", "create", "nova", "Hello", "--every", "60", "--cron", "* * * * *").err
    refused = nova("triggers", "create", "nova", "Hello", "--cron", "0 0 31 feb *")
    assert refused.code == 1
    assert "never fires" in refused.err
    assert "in the future" in nova("triggers", "create", "nova", "Hello", "--at", "2020-01-01T00:00:00Z").err


def test_a_trigger_has_limits_fires_on_request_and_lists_its_firings(nova: Nova) -> None:
    rules = ("--overlap", "queue", "--jitter", "60", "--max-runs", "9", "--max-cost", "2.5", "--catchup", "each")
    gate = ("--gate", '{"kind": "idle", "for_s": 60}', "--catchup-window", "60", "--pause-after", "0")
    made = nova.good("triggers", "create", "nova", "Look.", "--every", "600", *rules, *gate, "--json").json
    assert (made["overlap"], made["jitter_s"], made["max_runs_per_day"]) == ("queue", 60, 9)
    assert (made["max_cost_usd_per_day"], made["catchup"], made["catchup_s"]) == (2.5, "each", 60)
    assert (made["pause_after_failures"], made["gate"]) == (0, {"kind": "idle", "for_s": 60})
    trigger_id = made["id"]
    shown = nova.good("triggers", "show", trigger_id).out
    assert "9 runs, $2.5" in shown
    assert not re.search(r":\d\d\.\d", shown), "no fraction of a second"
    plain = nova.good("triggers", "edit", trigger_id, "--max-runs", "0", "--gate", "", "--json").json
    assert (plain["max_runs_per_day"], plain["max_cost_usd_per_day"], plain["gate"]) == (None, 2.5, None)
    assert "run run_" in nova.good("triggers", "fire", trigger_id).out
    listed = nova.good("triggers", "firings", trigger_id).out
    assert "fired, by hand" in listed
    assert nova.good("triggers", "resume", trigger_id, "--json").json["paused_reason"] is None
    assert "is no JSON" in nova("triggers", "edit", trigger_id, "--gate", "{").err
