"""`nova send --tools`: calls that the sender's machine executes."""

import json
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.requirements import proves
from tests.support.processes.command_line import Nova, wait_for

pytestmark = pytest.mark.fleet

Script = Callable[..., str]

_READ = "import json, sys; print(json.load(sys.stdin)['city'].upper())"


@pytest.fixture
def tools(tmp_path: Path) -> str:
    """Return the path of a file with tools: one works, one fails, and the results of one come from elsewhere."""
    file = tmp_path / "tools.json"
    named: dict[str, list[str] | None] = {
        "loud": [sys.executable, "-c", _READ],
        "broken": [sys.executable, "-c", "import sys; sys.exit('no sky')"],
        "manual": None,
    }
    listed = [{"name": name, **({} if command is None else {"command": command})} for name, command in named.items()]
    file.write_text(json.dumps(listed))
    return str(file)


@proves("runs.client-tools")
def test_calls_are_executed_here_and_the_answer_follows(nova: Nova, script: Script, tools: str) -> None:
    calls = [{"name": "loud", "input": {"city": "Oslo"}}, {"name": "broken", "input": {}}]
    message = script({"say": "Let me see. ", "tool": calls}, {"say": "Take a coat."})
    for mode in ([], ["--wait"]):
        assert "Take a coat." in nova.good("send", message, "--tools", tools, *mode).out
    thread_id = nova.good("runs", "list", "--json").json["items"][0]["thread_id"]
    shown = nova.good("threads", "show", thread_id, "--json").out
    assert "OSLO" in shown
    assert "failed (status 1): no sky" in shown


@proves("runs.client-tools")
def test_a_result_is_given_by_a_command_from_elsewhere(nova: Nova, script: Script, tools: str) -> None:
    message = script({"tool": {"name": "manual", "input": {}, "id": "call_elsewhere"}}, {"say": "ok"})
    run_id = nova.good("send", message, "--tools", tools, "--no-wait").out.strip()
    wait_for(lambda: run_id in nova.good("waits", "--kind", "client_tool", "--json").out, what="the call")
    nova.good("runs", "result", run_id, "call_elsewhere", "seen")
    assert nova.good("runs", "tail", run_id).out.strip().endswith("ok")
    refused = nova("runs", "result", run_id, "call_elsewhere", "another")
    assert "has another result already" in refused.err


def test_a_file_of_tools_that_is_wrong_is_refused_with_the_place(nova: Nova, tmp_path: Path) -> None:
    file = tmp_path / "tools.json"
    refused = nova("send", "hello", "--tools", str(file))
    assert (refused.code, f"--tools {file}: No such file or directory" in refused.err) == (1, True)
    file.write_text('[{"name": "a", "program": ["x"]}]')
    refused = nova("send", "hello", "--tools", str(file))
    assert refused.code == 1
    assert "0.program" in refused.err
