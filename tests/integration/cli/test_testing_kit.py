"""The testing kit of users, in the tests of a project that `nova init` made: a pytest of its own, as they run it.

An example of the documents is part of the project, since a fleet is a third of a minute of CPU.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from nova_workers.cli.projects.starter import make_project
from tests.requirements import proves
from tests.support.data.documents import ROOT

EXAMPLE = ROOT / "docs" / "examples" / "support"
AGENTS = {
    "clerk.yaml": "name: Clerk\ncapabilities:\n  project:shop: {}\n  user: {}\n",
    "sorter.yaml": "name: Sorter\nengine: code\nengine_config:\n  agent: shop:triage\n",
    "buyer.yaml": "name: Buyer\nengine: openai\nmodel: openai/gpt-5\ncapabilities:\n  project:shop: {}\n",
    "packer.yaml": "name: Packer\nengine: openai\nmodel: ollama/qwen3:30b\ncapabilities:\n  project:shop: {}\n",
}
TRIGGERS = """
weekly:
  agent_id: clerk
  kind: cron
  schedule: 0 0 * * 0
  prompt: What was sold?
often:
  agent_id: clerk
  kind: cron
  schedule: "* * * * *"
  prompt: Is there anything?
  enabled: false
"""
TESTS = """
from datetime import timedelta

import httpx2
import pytest

def test_time_passes_for_the_schedules_of_triggers(model, clock):
    model.says("Little.").says("Much.")
    fired = clock.advance(timedelta(weeks=2))
    assert [(each.trigger, each.time.isoweekday(), each.run.text) for each in fired] == [
        ("weekly", 7, "Little."),
        ("weekly", 7, "Much."),
    ]
    model.says("Less.")
    assert [each.run.text for each in clock.advance(timedelta(weeks=1))] == ["Less."]

def test_a_tool_of_the_project_is_called(model, run, transcript):
    model.calls("stock", article="B-114").calls("stock", article="114").says("Three.")
    ended = run("clerk", "How many?")
    assert ended.text == "Three.", ended.error
    results = [(entry.text, entry.failed) for entry in transcript(ended) if entry.kind == "result"]
    assert results == [("3", False), ("There is no article '114'; numbers begin with B-.", True)]
    model.says("Three, still.")
    assert run("clerk", "Sure?", thread=ended).text == "Three, still."
    assert [message["role"] for message in model.requests[-1]["messages"]].count("user") == 4

@pytest.mark.parametrize(("agent", "conversation"), [("buyer", "input"), ("packer", "messages")])
def test_the_script_serves_the_wire_of_any_engine(agent, conversation, model, run, transcript):
    model.calls("stock", article="B-114").says("Three.")
    ended = run(agent, "How many?")
    assert ended.text == "Three.", ended.error
    assert [entry.text for entry in transcript(ended) if entry.kind == "result"] == ["3"]
    assert all(conversation in request for request in model.requests)

def test_an_agent_in_python_asks_the_model(model, run):
    model.says("order").says("It is on its way.")
    assert run("sorter", "Where is it?").text == "It is on its way."

def test_a_question_is_answered(fleet, model, run):
    model.calls("ask_user", question="Which one?").says("Then that.")
    waits = run("clerk", "Do it.")
    assert waits.status == "waiting"
    assert fleet.answer(waits, "The red one.").text == "Then that."

def test_a_tenant_has_nothing_of_other_tests(fleet, model):
    assert not fleet.client.threads.list().items

def test_fails_since_an_answer_is_missing(model, run):
    assert run("clerk", "Hello.").status == "failed"

def test_fails_since_an_answer_is_not_asked_for(model):
    model.says("Hello.")

REFUSED = {
    "/v1/messages": {"model": "m", "max_tokens": 1, "messages": [{"role": "user", "content": " "}]},
    "/v1/chat/completions": {"model": "m", "messages": [{"role": "tool", "tool_call_id": "c1", "content": "3"}]},
    "/v1/responses": {"model": "m", "input": "Hello.", "n": 2},
    "/gemini/v1beta/models/m:streamGenerateContent": {},
}

@pytest.mark.parametrize("path", REFUSED)
def test_fails_since_a_provider_would_refuse(path, model, model_server):
    assert httpx2.post(model_server.url + path, json=REFUSED[path], trust_env=False).status_code == 400
"""
REFUSALS = (
    "The provider would refuse a request: messages: text content blocks must contain non-whitespace text",
    "The provider would refuse a request: Invalid parameter: messages with role 'tool' must be a response to",
    "The provider would refuse a request: Unknown parameter: 'n'.",
    "The model of a test does not answer agents of the engine 'gemini'.",
)


@proves("kit.project", "kit.wires", "docs.examples")
def test_tests_of_a_project_script_its_model_and_see_what_its_agents_do(tmp_path: Path) -> None:
    root = make_project(tmp_path / "shop", "shop").root
    for name, text in AGENTS.items():
        (root / "agents" / name).write_text(text, encoding="utf-8")
    with (root / "triggers.yaml").open("a", encoding="utf-8") as triggers:
        triggers.write(TRIGGERS)
    (root / "tests" / "test_kit.py").write_text(TESTS, encoding="utf-8")
    for part in ("tools/orders.py", "tests/test_support.py"):
        shutil.copy(EXAMPLE / part, root / part)
    agent = (EXAMPLE / "agents" / "support.yaml").read_text("utf-8")
    (root / "agents" / "support.yaml").write_text(agent.replace("project:support", "project:shop"), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-rA", "-p", "no:randomly", "-p", "no:cacheprovider", "--tb=short"],
        cwd=root,
        # No test of theirs may reach a provider, whatever the environment has.
        env={**os.environ, "ANTHROPIC_BASE_URL": "http://127.0.0.1:1", "NOVA_MODEL__BASE_URL": "http://127.0.0.1:1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    shown = done.stdout + done.stderr
    outcomes = _outcomes(shown)
    failed = {name: outcome for name, outcome in outcomes.items() if name.startswith("test_fails_since")}
    assert len(failed) == 6, shown
    assert set(failed.values()) == {"ERROR"}, shown
    passed = {name: outcome for name, outcome in outcomes.items() if name not in failed}
    assert len(passed) == 14, shown
    assert set(passed.values()) == {"PASSED"}, shown
    assert "The model was asked once more than the test has answers for it." in shown
    assert "The model was not asked for this answer: {'content': 'Hello.'}" in shown
    assert [refusal for refusal in REFUSALS if refusal not in shown] == [], shown


def _outcomes(shown: str) -> dict[str, str]:
    """Return the last outcome of each test: that of its end, if that failed."""
    return {
        name: outcome for outcome, name in re.findall(r"^(PASSED|FAILED|ERROR) tests/\S+::(\S+)", shown, re.MULTILINE)
    }
