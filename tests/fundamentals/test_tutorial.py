"""The tutorial, word for word but for one wait: each of its commands, in order, on a fleet that `nova up` started."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

from nova_workers.base.config import Settings
from nova_workers.devstack.home import read_state
from tests.support.data.documents import ROOT, blocks

TUTORIAL = ROOT / "docs" / "tutorial.md"
_START_S = 180.0
_STOP_S = 60.0
_COMMANDS_S = 600.0
_LAST_WAIT = '"sleep_s": 7'
_LONG_WAIT = '"sleep_s": 30'
"""In place of the page's: a turn that is steered or killed must not end while a busy machine starts a command."""


@pytest.fixture
def reader(tmp_path: Path) -> dict[str, str]:
    """The environment of a reader of the page: an own home, and `nova` on the PATH."""
    shim = tmp_path / "bin" / "nova"
    shim.parent.mkdir()
    shim.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nova_workers.cli "$@"\n')
    shim.chmod(0o755)
    path = f"{shim.parent}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"HOME": str(tmp_path), "PATH": path, "PYTHONPATH": str(ROOT), "LC_ALL": "C.UTF-8"}


@pytest.fixture
def log(reader: Mapping[str, str], settings: Settings, tmp_path: Path) -> Iterator[Path]:
    """The output of `nova up`, once the fleet is up. Its servers are those of the tests."""
    servers = {"NOVA_DATABASE_URL": settings.require_database_url(), "NOVA_REDIS_URL": settings.require_redis_url()}
    log = tmp_path / "up.log"
    with log.open("wb") as sink:
        stack = subprocess.Popen(
            ["nova", "up", "--port", "0"],
            env={**reader, **servers, "NOVA_EFFECTS__EMBEDDING_PROVIDER": "off"},
            stdin=subprocess.DEVNULL,
            stdout=sink,
            stderr=sink,
            start_new_session=True,
        )
    try:
        deadline_s = time.monotonic() + _START_S
        while read_state(tmp_path / ".nova") is None:
            if stack.poll() is not None or time.monotonic() > deadline_s:
                pytest.fail(f"`nova up` did not come up\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.1)
        yield log
    finally:
        _stop(stack)


@pytest.mark.long
@pytest.mark.fleet
@pytest.mark.timeout(900)
def test_every_command_of_the_tutorial_does_what_the_page_says(
    log: Path, reader: Mapping[str, str], tmp_path: Path
) -> None:
    said = _run_page(log, reader, tmp_path)

    def after(words: str) -> str:
        return next(answer for command, answer in said if words in command)

    assert "closes at six" in after("What do you know about our office?")
    assert "event: stream_end" in after("/v1/runs/stream")
    assert "Done." in after("cat > slow.json")
    assert "mention the weather" in after("--on-busy steer")
    assert re.search(r"canceled.*", after("--on-busy interrupt"))
    # Killed, and not noticed yet; then resumed.
    at = next(index for index, (command, _) in enumerate(said) if "kill -KILL" in command)
    assert re.search(r"^status +running\b", said[at][1], re.MULTILINE)
    assert re.search(r"^status +succeeded", said[at + 1][1], re.MULTILINE)
    assert re.search(r"^attempt +2\b", said[at + 1][1], re.MULTILINE), said[at + 1][1]
    assert "paused" in after("nova fleet pause")


def _run_page(log: Path, reader: Mapping[str, str], folder: Path) -> list[tuple[str, str]]:
    """Run the page's commands in one shell, and return each block with what it wrote to stdout."""
    steps = [block for block in blocks("sh", TUTORIAL) if block.not_run is None]
    texts = [block.text.replace(_LAST_WAIT, _LONG_WAIT) for block in steps]
    assert texts != [block.text for block in steps], f"the page has no {_LAST_WAIT}"
    state = read_state(folder / ".nova")
    assert state is not None
    told = subprocess.run(
        ["bash", "-euo", "pipefail"],
        input="\n".join(f"printf '\\n=== {block.line}\\n'\n{text}" for block, text in zip(steps, texts, strict=True)),
        # The port of the page may be taken on this machine, so the fleet has another.
        env={**reader, "NOVA_API_URL": state.api_url},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=_COMMANDS_S,
        check=False,
    )
    everything = f"{told.stdout}\n--- stderr\n{told.stderr}\n--- nova up\n{log.read_text(errors='replace')[-6000:]}"
    assert told.returncode == 0, everything
    answers = {int(line): text for line, text in re.findall(r"^=== (\d+)\n(.*?)(?=^=== |\Z)", told.stdout, re.M | re.S)}
    return [(block.text, answers[block.line]) for block in steps]


def _stop(stack: "subprocess.Popen[bytes]") -> None:
    stack.send_signal(signal.SIGINT)
    try:
        stack.wait(_STOP_S)
    except subprocess.TimeoutExpired:
        os.killpg(stack.pid, signal.SIGKILL)
        stack.wait()
        raise
