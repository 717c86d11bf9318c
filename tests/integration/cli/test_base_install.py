"""The base install against a real fleet."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.support.processes.command_line import Nova


def test_the_base_install_lists_the_runs_of_a_fleet(nova: Nova) -> None:
    run_id = nova.good("send", "Hello", "--wait", "--json").json["id"]
    command = [sys.executable, "-m", "tests.support.processes.base_install", "runs", "list", "--json"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True, env=nova.env, timeout=60)
    assert run_id in [run["id"] for run in json.loads(listed.stdout)["items"]]
