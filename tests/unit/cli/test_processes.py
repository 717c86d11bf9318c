"""The processes that `nova up`, `api`, `worker`, `beat`, `console` and `flower` exec."""

import json
import os
import socket
import sys
from pathlib import Path
from unittest import mock

import pytest

from nova_workers.devstack.commands import beat_command, console_command, flower_command, worker_command
from tests.requirements import proves
from tests.support.processes.command_line import Done, Nova

SERVERS = {"NOVA_DATABASE_URL": "postgresql://db/nova", "NOVA_REDIS_URL": "redis://broker/0"}


class ProcessReplaced(Exception):
    """Raised instead of replacing the process."""


def _arguments_of_exec(home: Path, *arguments: str, **env: str) -> tuple[list[str], dict[str, str]]:
    with mock.patch.object(os, "execvpe", side_effect=ProcessReplaced) as execvpe, pytest.raises(ProcessReplaced):
        Nova({"NOVA_HOME": str(home)})(*arguments, **env)
    program, command, environment = execvpe.call_args.args
    assert program == command[0] == sys.executable
    return command[1:], environment


def _refused(home: Path, *arguments: str, **env: str) -> Done:
    return Nova({"NOVA_HOME": str(home)})(*arguments, **env)


def _free_port() -> str:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return str(free.getsockname()[1])


def test_api_becomes_uvicorn_at_the_configured_address(tmp_path: Path) -> None:
    port = _free_port()
    command, environment = _arguments_of_exec(tmp_path, "api", **SERVERS, NOVA_API__PORT=port)
    assert command[1:5] == ["nova_workers.devstack.run_module", "uvicorn", "api.app:create_app", "--factory"]
    assert f"--host 127.0.0.1 --port {port}" in " ".join(command)
    assert environment["NOVA_DATABASE_URL"] == SERVERS["NOVA_DATABASE_URL"]


def test_options_of_the_api_override_settings(tmp_path: Path) -> None:
    command, _ = _arguments_of_exec(tmp_path, "api", "--host", "0.0.0.0", "--port", "0", **SERVERS)
    assert "--host 0.0.0.0 --port 0" in " ".join(command)


def test_worker_becomes_celery_on_threads(tmp_path: Path) -> None:
    command, environment = _arguments_of_exec(
        tmp_path, "worker", "-c", "7", "-Q", "interactive, system", "-n", "w1", **SERVERS
    )
    whole = worker_command(concurrency=7, queues=("interactive", "system"), name="w1", log_level="info")
    assert command == whole[1:]
    assert environment["NOVA_WORKER__CONCURRENCY"] == "7"


@proves("security.loopback")
def test_beat_and_flower_become_celery_and_flower_listens_on_loopback(tmp_path: Path) -> None:
    beat, _ = _arguments_of_exec(tmp_path, "beat", **SERVERS)
    assert beat == beat_command(log_level="info")[1:]
    port = _free_port()
    flower, _ = _arguments_of_exec(tmp_path, "flower", "--port", port, **SERVERS)
    assert flower == flower_command(host="127.0.0.1", port=int(port))[1:]


@proves("security.loopback")
def test_the_console_gets_the_api_and_a_key_and_listens_on_loopback(tmp_path: Path) -> None:
    (tmp_path / "nova.json").write_text(json.dumps({"api_url": "http://127.0.0.1:1234"}))
    (tmp_path / "api_key").write_text("nova_secret\n")
    port = _free_port()
    console, environment = _arguments_of_exec(tmp_path, "console", "--port", port)
    assert console == console_command(host="127.0.0.1", port=int(port), log_level="info")[1:]
    assert (environment["NOVA_API_URL"], environment["NOVA_API_KEY"]) == ("http://127.0.0.1:1234", "nova_secret")
    assert environment["NOVA_CONSOLE__PORT"] == port


def test_a_process_joins_the_servers_of_nova_up(tmp_path: Path) -> None:
    (tmp_path / "nova.json").write_text(json.dumps({"database_url": "postgresql://up", "redis_url": "redis://up"}))
    _, environment = _arguments_of_exec(tmp_path, "worker")
    assert environment["NOVA_DATABASE_URL"] == "postgresql://up"
    assert environment["NOVA_REDIS_URL"] == "redis://up"


@pytest.mark.parametrize("command", ["api", "worker"])
def test_without_servers_the_error_names_the_variable_to_set(tmp_path: Path, command: str) -> None:
    done = _refused(tmp_path, command)
    assert done.code == 1
    assert done.err.startswith("nova: NOVA_DATABASE_URL is not set")
    done = _refused(tmp_path, command, NOVA_DATABASE_URL="postgresql://db/nova")
    assert done.err.startswith("nova: NOVA_REDIS_URL is not set")


@pytest.mark.parametrize("command", ["beat", "flower"])
def test_beat_and_flower_only_need_the_broker(tmp_path: Path, command: str) -> None:
    assert _refused(tmp_path, command).err.startswith("nova: NOVA_REDIS_URL is not set")
    options = ("--port", _free_port()) if command == "flower" else ()
    _, environment = _arguments_of_exec(tmp_path, command, *options, NOVA_REDIS_URL=SERVERS["NOVA_REDIS_URL"])
    assert environment["NOVA_REDIS_URL"] == SERVERS["NOVA_REDIS_URL"]
    assert "NOVA_DATABASE_URL" not in environment


@pytest.mark.parametrize("command", ["api", "console", "flower"])
def test_a_port_that_is_taken_is_reported_before_the_process_begins(tmp_path: Path, command: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        done = _refused(tmp_path, command, "--port", str(port), **SERVERS)
    assert done.code == 1
    setting = "" if command == "flower" else f" or NOVA_{command.upper()}__PORT"
    assert done.err == f"nova: Port {port} of 127.0.0.1 is taken; give another with --port{setting}.\n"


def test_an_address_that_is_not_ours_is_an_error_of_one_line(tmp_path: Path) -> None:
    done = _refused(tmp_path, "flower", "--host", "192.0.2.1", **SERVERS)
    assert done.code == 1
    assert done.err.startswith("nova: 192.0.2.1, port 5555, cannot be listened on")


def test_up_becomes_the_stack(tmp_path: Path) -> None:
    command, _ = _arguments_of_exec(tmp_path, "up", "--port", "0", "--workers", "2")
    assert command == ["-m", "nova_workers.devstack", "--port", "0", "--workers", "2"]


def test_up_refuses_settings_that_cannot_be_used(tmp_path: Path) -> None:
    done = _refused(tmp_path, "up", NOVA_API__PORT="-1")
    assert done.code == 1
    assert "NOVA_API__PORT" in done.err


def test_version_names_this_installation(tmp_path: Path) -> None:
    versions = Nova({"NOVA_HOME": str(tmp_path)}).good("version", "--json").json
    assert {"nova-workers", "celery", "python"} <= set(versions)


def test_a_process_names_variables_that_are_no_settings_before_it_starts(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        shown = _refused(tmp_path, "api", "--port", port, **SERVERS, NOVA_API_PORT="7").err
    assert "nova: NOVA_API_PORT is set, but is not a setting; did you mean NOVA_API__PORT?" in shown


def test_an_unknown_variable_of_a_section_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    shown = _refused(tmp_path, "worker", **SERVERS, NOVA_WORKER__CONCURENCY="7").err
    assert "NOVA_WORKER__CONCURENCY: there is no such field; did you mean 'concurrency'?" in shown
