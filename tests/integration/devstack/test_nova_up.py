"""`nova up`: the whole stack in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager, suppress
from pathlib import Path

import asyncpg
import httpx2
import pytest

from nova_workers.devstack.home import StackState, read_state
from tests.integration.devstack.installed_wheel import install_beside_project
from tests.requirements import proves
from tests.support.processes.inspection import command_lines, descendants, is_alive, wait_until_gone

pytestmark = pytest.mark.fleet

START_S = 120.0
STOP_S = 60.0
COMMAND = [sys.executable, "-m", "nova_workers.devstack", "--port", "0"]


@pytest.fixture
def home() -> Generator[Path]:
    with tempfile.TemporaryDirectory(prefix="nova-up-", ignore_cleanup_errors=True) as folder:
        yield Path(folder) / "home"


PROVIDER_KEY = "sk-of-the-provider"
OTHER_SECRET = "of-another-program"
PROGRAMS = {
    "api.app:create_app": "api",
    "nova_workers.worker.app:app": "worker",
    "beat.app:app beat": "beat",
    "beat.app:app flower": "flower",
    "console.server:": "console",
    "stand_in.server:": "model",
    "valkey-server": "valkey",
    "postgres": "postgres",
    "nova_workers.channels telegram": "telegram",
}


AUDIO_KEY = "sk-of-the-transcription"
BOT_TOKEN = "4242:AAtest-token-that-must-never-be-in-a-log"
# No Bot API is there: the channel starts, and waits for it.
BOT = {
    "NOVA_TELEGRAM__TOKEN": BOT_TOKEN,
    "NOVA_TELEGRAM__USERS": "[7]",
    "NOVA_TELEGRAM__BASE_URL": "http://127.0.0.1:9",
}


def environment(home: Path) -> dict[str, str]:
    return {
        **os.environ,
        "NOVA_HOME": str(home),
        "OPENAI_API_KEY": PROVIDER_KEY,
        "NOVA_AUDIO__TRANSCRIPTION_API_KEY": AUDIO_KEY,
        "GITHUB_TOKEN": OTHER_SECRET,
    }


def program_of(command_line: str) -> str:
    return next((name for part, name in PROGRAMS.items() if part in command_line), command_line)


def programs_with(text: str, pids: Iterable[int]) -> set[str]:
    """Return the programs whose environment has a text, but for processes of Postgres that have ended."""
    having = set()
    for pid, line in command_lines(pids).items():
        with suppress(FileNotFoundError, ProcessLookupError):
            if text.encode() in Path(f"/proc/{pid}/environ").read_bytes():
                having.add(program_of(line))
    return having


def until(happened: Callable[[], bool], what: str, log: Path, timeout_s: float = START_S) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not happened():
        assert time.monotonic() < deadline_s, f"waited {timeout_s} s for {what}\n{log.read_text()}"
        time.sleep(0.05)


async def users_of_processes(owner_url: str) -> set[str]:
    """Return the database users of all sessions but our own."""
    connection = await asyncpg.connect(owner_url)
    rows = await connection.fetch(
        "SELECT DISTINCT usename FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
    )
    await connection.close()
    return {row["usename"] for row in rows}


async def drop_a_table(url: str) -> None:
    connection = await asyncpg.connect(url)
    try:
        await connection.execute("DROP TABLE audit_events")
    finally:
        await connection.close()


@contextmanager
def nova_up(
    home: Path, *, cwd: Path | None = None, **env: str
) -> Generator[tuple[subprocess.Popen[bytes], StackState, Path]]:
    log = home.with_suffix(".log")
    with log.open("ab") as output:
        given = {**environment(home), **env}
        process = subprocess.Popen(COMMAND, cwd=cwd, env=given, stdout=output, stderr=output, start_new_session=True)
    try:

        def serves() -> bool:
            assert process.poll() is None, log.read_text()
            state = read_state(home)
            return state is not None and state.pid == process.pid

        until(serves, "the stack", log)
        state = read_state(home)
        assert state is not None
        yield process, state, log
    finally:
        process.kill()
        process.wait()


@pytest.mark.begins_first
@proves("secrets.placed", "tenants.second-wall", "start.refused", "packaging.names")
def test_it_starts_refuses_a_second_stack_restarts_what_died_and_leaves_no_process(home: Path) -> None:
    """The stack is the wheel's, beside a project with modules of the same names; the refused ones the repository's."""
    wrong = {**environment(home), "NOVA_REDIS_URL": "redis://127.0.0.1:9/0"}
    refused = subprocess.run(COMMAND, env=wrong, capture_output=True, text=True, timeout=START_S, check=False)
    assert (refused.returncode, home.exists()) == (1, False)
    assert "NOVA_REDIS_URL names a Redis that refuses" in refused.stdout + refused.stderr
    project, wheel = install_beside_project(home.parent)
    with nova_up(home, cwd=project, **BOT, **wheel) as (process, state, log):
        key_file = home / "api_key"
        assert stat.S_IMODE(key_file.stat().st_mode) == 0o600
        assert stat.S_IMODE((home / "nova.json").stat().st_mode) == 0o600
        headers = {"Authorization": f"Bearer {key_file.read_text().strip()}"}
        agents = httpx2.get(f"{state.api_url}/v1/agents", headers=headers).json()
        assert {agent["id"] for agent in agents["items"]} == {"nova", "agent-builder"}
        password = (home / "flower_password").read_text().strip()
        assert stat.S_IMODE((home / "flower_password").stat().st_mode) == 0o600
        assert httpx2.get(state.flower_url).status_code == 401
        assert httpx2.get(state.flower_url, auth=("nova", password)).status_code == 200
        assert f"cat {home / 'flower_password'}" in log.read_text()
        assert state.console_url is not None
        login = (home / "console.login").read_text().strip()
        assert login.startswith(f"{state.console_url}/login?token=")
        assert "token=" not in log.read_text()
        assert "(a one-time login: `nova console --login` on a terminal)" in log.read_text()
        with httpx2.Client(timeout=60) as browser:
            assert browser.get(login).headers["location"] == "/"
            assert browser.get(state.console_url).status_code == 200

        sent = {"message": "hello"}
        answer = httpx2.post(f"{state.api_url}/v1/runs/wait", json=sent, headers=headers, timeout=START_S).json()
        assert answer["status"] == "succeeded", answer

        everyone = descendants(process.pid)
        assert {program_of(line) for line in command_lines(everyone).values()} == set(PROGRAMS.values())
        from_the_wheel = "\n".join(command_lines(everyone).values())
        assert "nova_workers.api.app:create_app" in from_the_wheel
        assert "nova_workers.beat.app:app beat" in from_the_wheel
        master_key = (home / "master_keys").read_text().strip()
        assert programs_with(master_key, everyone) == {"api", "worker"}
        assert programs_with(PROVIDER_KEY, everyone) == {"worker"}
        assert programs_with(OTHER_SECRET, everyone) == {"worker"}
        assert programs_with(password, everyone) == {"flower"}
        assert programs_with(key_file.read_text().strip(), everyone) == {"console", "telegram"}
        assert programs_with(AUDIO_KEY, everyone) == {"worker", "telegram"}
        assert programs_with(BOT_TOKEN, everyone) == {"telegram"}
        assert programs_with("NOVA_DATABASE_URL", everyone) == {"api", "worker"}
        assert programs_with("NOVA_HOME=", everyone) == {"api", "worker", "console"}
        assert "  Telegram 1 bot, for 1 person" in log.read_text()
        until(lambda: "telegram.away" in log.read_text(), "the channel with the lease of its bot", log)
        for secret in (key_file.read_text().strip(), master_key, PROVIDER_KEY, AUDIO_KEY, BOT_TOKEN, password):
            assert secret not in log.read_text()

        assert asyncio.run(users_of_processes(state.database_url)) == {"nova_app"}
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            asyncio.run(drop_a_table(state.database_url.replace("postgres@", "nova_app@")))

        second = subprocess.run(COMMAND, env=environment(home), capture_output=True, text=True, timeout=60, check=False)
        assert second.returncode == 1
        assert str(process.pid) in second.stderr
        assert state.api_url in second.stderr

        lines = command_lines(descendants(process.pid))
        api = next(pid for pid, line in lines.items() if program_of(line) == "api")
        os.kill(api, signal.SIGKILL)
        until(lambda: not is_alive(api), "the end of the API", log)
        until(lambda: answers(f"{state.api_url}/readyz"), "the API's return", log)

        everyone = descendants(process.pid)
        assert len(everyone) >= 8
        process.kill()
        process.wait()
        assert wait_until_gone(everyone, STOP_S) == set(), log.read_text()


# The parts are shown alone: the key by `test_first_start.py`, kept data by `test_embedded_servers.py`, the order of
# the end by `test_supervisor.py`.
@pytest.mark.long
def test_a_killed_stack_starts_again_with_its_data_and_ends_in_order(home: Path) -> None:
    with nova_up(home) as (process, state, log):
        everyone = descendants(process.pid)
        process.kill()
        process.wait()
        assert wait_until_gone(everyone, STOP_S) == set(), log.read_text()
    key_file = home / "api_key"
    key = key_file.read_text()
    with nova_up(home) as (process, state, log):
        assert key_file.read_text() == key
        headers = {"Authorization": f"Bearer {key.strip()}"}
        assert httpx2.get(f"{state.api_url}/v1/agents", headers=headers).status_code == 200
        everyone = descendants(process.pid)
        process.send_signal(signal.SIGTERM)
        assert process.wait(STOP_S) == 0, log.read_text()
        assert wait_until_gone(everyone, STOP_S) == set(), log.read_text()
        assert read_state(home) is None


def test_a_taken_port_is_reported_with_what_to_do(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        command = [*COMMAND[:-1], str(port)]
        done = subprocess.run(command, env=environment(home), capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1
    assert f"Port {port} on 127.0.0.1 is taken" in done.stdout
    assert "--port 0" in done.stdout
    assert not home.exists()


def answers(url: str) -> bool:
    try:
        return httpx2.get(url).is_success
    except httpx2.HTTPError:
        return False
