"""`nova tasks` on a real fleet."""

import re

import pytest

from tests.support.processes.command_line import Nova, wait_for

pytestmark = pytest.mark.fleet


def test_a_task_is_created_delegated_followed_and_ended(nova: Nova) -> None:
    made = nova.good(
        "tasks", "create", "Find a flat", "--step", "Look", "--step", "Visit", "--url", "https://example.org", "--json"
    ).json
    number = str(made["id"])
    assert (made["status"], made["owner_agent_id"], made["created_by"]) == ("draft", "nova", "person")

    refused = nova("tasks", "complete", number)
    assert refused.code == 1
    assert f"Task {number} cannot go from 'draft' to 'done'. It can become active or canceled." in refused.err

    nova.good("tasks", "activate", number)
    nova.good("tasks", "check", number, "1")
    child = nova.good("tasks", "delegate", number, "2", "--owner", "agent-builder", "--json").json
    shown = nova.good("tasks", "show", number).out
    assert "1 of 2 steps done" in shown
    assert re.search(r"1 \[x\] Look\n +2 \[ \] Visit\n", shown)
    assert f"task {child['id']}, active, agent-builder" in shown
    assert f"subtasks of it are open: {child['id']}." in nova("tasks", "complete", number).err

    nova.good("tasks", "complete", str(child["id"]), "--outcome", "It was nice.")
    task = nova.good("tasks", "show", number, "--json").json
    assert [step["done"] for step in task["steps"]] == [True, True]

    # The doorbell rang: the owner's run on the task's thread is executed.
    def answered() -> object:
        listed = nova.good("runs", "list", "--thread", task["thread_id"], "--json").json["items"]
        return [run for run in listed if run["status"] == "succeeded"]

    [run] = wait_for(answered, what="the owner's run")
    assert (run["source"], run["queue"]) == ("task", "background")
    assert "It was nice." in run["message"][0]["text"]

    listed = nova.good("tasks", "list", "--status", "active").out
    assert "Find a flat" in listed
    assert "2/2" in listed
    nova.good("tasks", "edit", number, "--title", "Found a flat")
    assert "done" in nova.good("tasks", "complete", number).out
    history = nova.good("tasks", "history", number).out
    assert [line.split()[0] for line in history.splitlines()[1:]] == ["7", "6", "5", "4", "3", "2", "1"]
    assert "subtask completed" in history
    assert "title from 'Find a flat' to 'Found a flat'" in history
    assert "draft, for nova; steps 'Look', 'Visit'; url https://example.org" in history
    assert "step 1 done" in history
    assert "{" not in history


def test_a_task_is_run_now_and_shows_when_it_is_worked_on_next(nova: Nova) -> None:
    made = nova.good("tasks", "create", "Water the plants", "--step", "Water", "--json").json
    number = str(made["id"])
    assert "only an active task is worked on. Activate it first." in nova("tasks", "run", number).err
    nova.good("tasks", "activate", number)
    followed = nova.good("tasks", "run", number, "--follow")
    assert f"Work on task {number} now." in followed.out
    shown = nova.good("tasks", "show", number).out
    run_id = nova.good("tasks", "show", number, "--json").json["working_run_id"]
    assert re.search(rf"worked on in +{run_id} *\nnext work +\d{{4}}-", shown)
    assert re.search(r"next work", nova.good("tasks", "list").out)

    again = nova.good("tasks", "run", number)
    assert again.out.strip() != run_id
    assert f"`nova runs tail {again.out.strip()}`" in again.err


def test_open_subtasks_are_canceled_with_a_task(nova: Nova) -> None:
    made = nova.good("tasks", "create", "Tidy", "--step", "Sweep", "--activate", "--json").json
    child = nova.good("tasks", "delegate", str(made["id"]), "1", "--json").json
    assert "canceled" in nova.good("tasks", "cancel", str(made["id"]), "--outcome", "Not now").out
    assert nova.good("tasks", "show", str(child["id"]), "--json").json["status"] == "canceled"
    assert "There is no task 2147483647." in nova("tasks", "show", "2147483647").err
    assert nova("tasks", "show", "0").code == 2
    assert "there is no step 2" in nova("tasks", "check", str(made["id"]), "2").err


def test_a_task_gets_a_new_plan_and_further_resources(nova: Nova) -> None:
    made = nova.good("tasks", "create", "Paint", "--step", "Buy", "--step", "Mix", "--json").json
    number, [buy, mix] = str(made["id"]), [step["id"] for step in made["steps"]]
    nova.good("tasks", "check", number, "1")
    planned = nova.good("tasks", "plan", number, "--step", "Sand", "--step", "Buy", "--json").json["steps"]
    assert [(step["title"], step["done"]) for step in planned] == [("Sand", False), ("Buy", True)]
    assert planned[1]["id"] == buy
    assert mix not in {step["id"] for step in planned}
    longer = nova.good("tasks", "plan", number, "--add", "--step", "Clean", "--json").json["steps"]
    assert [step["title"] for step in longer] == ["Sand", "Buy", "Clean"]
    assert [step["id"] for step in longer[:2]] == [step["id"] for step in planned]

    url, path = "https://example.org/colours", "/tmp/wall.png"
    assert url in nova.good("tasks", "attach", number, "--url", url, "--path", path).out
    assert "Nothing to attach" in nova("tasks", "attach", number).err
    left = nova.good("tasks", "detach", number, url, "--json").json["resources"]
    assert [(each["kind"], each["value"]) for each in left] == [("file", path)]
    assert f"does not work with '{url}'" in nova("tasks", "detach", number, url).err
    history = nova.good("tasks", "history", number).out
    for words in (f"url {url}", f"file {path}", "added 'Sand'; removed 'Mix'", "added 'Clean'"):
        assert words in history
