"""`pip install nova-workers` without extras: the client, and every command that talks to a fleet."""

from __future__ import annotations

import subprocess
import sys

from nova_workers.cli.app import COMMANDS
from nova_workers.cli.extras import EXTRA_MODULES
from tests.support.processes.base_install import base_distributions

SERVERS_AND_MODELS = {
    "celery",
    "fastapi",
    "asyncpg",
    "sqlalchemy",
    "redis",
    "anthropic",
    "openai",
    "onnxruntime",
    "mcp",
}


def run_base(*arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.support.processes.base_install", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)


def test_the_base_install_has_no_server_and_no_model() -> None:
    assert base_distributions() & SERVERS_AND_MODELS == set()


def test_every_command_that_needs_no_extra_loads_with_the_base_install() -> None:
    modules = {entry.module for entry in COMMANDS if not entry.extra}
    done = run_base("--import", "nova_workers.client", "nova_workers.channels.run", *sorted(modules))
    assert (done.stdout, done.stderr) == ("", "")


def test_the_help_of_all_commands_is_shown_with_the_base_install() -> None:
    done = run_base("--help")
    assert done.returncode == 0, done.stderr
    assert all(entry.name in done.stdout for entry in COMMANDS)


def test_a_command_without_its_extra_names_it_and_how_to_install_it() -> None:
    extras = {entry.name: entry.extra for entry in COMMANDS if entry.extra}
    done = run_base("--each", *extras)
    assert done.stdout.splitlines() == [f"{command}: 1" for command in extras]
    assert done.stderr.splitlines() == [
        f"nova: `nova {command}` needs the extra {extra!r}, which is not installed: pip install 'nova-workers[{extra}]'"
        for command, extra in extras.items()
    ]


def test_the_module_that_stands_for_an_extra_is_not_in_the_base_install() -> None:
    done = run_base("--import", *EXTRA_MODULES.values())
    assert done.stdout.count("No module named") == len(EXTRA_MODULES)
