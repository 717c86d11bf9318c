"""Commands end without a traceback if their output is closed, or after Ctrl-C."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

_NOVA = [sys.executable, "-m", "nova_workers.cli"]
_COMMANDS = [
    pytest.param(["version"], id="version"),
    *(
        pytest.param(words, id=" ".join(words), marks=pytest.mark.long)
        for words in (["--help"], ["version", "--json"], ["send", "--help"], ["--version"])
    ),
]
"""One path writes the output of all commands; the others show it once more."""


def _receive_interrupts() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("arguments", _COMMANDS)
def test_a_full_stdout_is_one_line(arguments: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run([*_NOVA, *arguments], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "nova: The output could not be written: No space left on device.\n"


@pytest.mark.parametrize("arguments", _COMMANDS)
def test_a_closed_pipe_ends_a_command_quietly(arguments: list[str]) -> None:
    read, write = os.pipe()
    os.close(read)
    done = subprocess.run([*_NOVA, *arguments], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert done.returncode == 128 + signal.SIGPIPE
    assert done.stderr == ""


@pytest.mark.parametrize("arguments", _COMMANDS)
def test_a_closed_stdout_is_one_line(arguments: list[str]) -> None:
    command = f"{' '.join([*_NOVA, *arguments])} >&-"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == "nova: The output could not be written: Bad file descriptor.\n"


@pytest.mark.parametrize(
    ("where", "why"),
    [
        ("/dev/full", "No space left on device"),
        # As for `nova version` above.
        pytest.param("&-", "Bad file descriptor", marks=pytest.mark.long),
    ],
)
def test_the_demo_ends_on_a_stdout_that_cannot_be_written(where: str, why: str) -> None:
    command = f"{sys.executable} -m nova_workers.cli.demo >{where}"
    done = subprocess.run(["/bin/sh", "-c", command], stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr == f"demo: The output could not be written: {why}.\n"


@pytest.mark.parametrize("where", ["/dev/full", "&-"])
def test_a_stderr_that_cannot_be_written_hides_no_answer(where: str) -> None:
    command = f"{' '.join([*_NOVA, 'version'])} 2>{where}"
    done = subprocess.run(["/bin/sh", "-c", command], stdout=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 0
    assert "nova-workers" in done.stdout


def test_a_stderr_that_cannot_be_written_leaves_the_exit_status_of_an_error() -> None:
    command = f"{' '.join(_NOVA)} runs list --api-url nonsense 2>/dev/full"
    assert subprocess.run(["/bin/sh", "-c", command], check=False).returncode == 1


_PRESSED = """
import atexit, importlib, os, signal, sys

program, moment, *sys.argv[1:] = sys.argv[1:]
press = lambda: os.kill(os.getpid(), signal.SIGINT)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == moment:
            sys.meta_path.remove(self)
            press()

sys.meta_path.insert(0, Finder())
if moment == "the end":
    atexit.register(press)
sys.exit(importlib.import_module(program).main())
"""
"""Runs a program, and presses Ctrl-C when it begins to load a module, or as it ends."""


@pytest.mark.parametrize(
    ("program", "moment", "arguments"),
    [
        ("nova_workers.cli.__main__", "nova_workers.cli.app", ["version"]),
        # A library of all commands, the command's own module, and libraries of one command: later moments of one guard.
        pytest.param("nova_workers.cli.__main__", "typer", ["version"], marks=pytest.mark.long),
        pytest.param("nova_workers.cli.__main__", "nova_workers.cli.version", ["version"], marks=pytest.mark.long),
        pytest.param("nova_workers.cli.__main__", "pydantic_core", ["runs", "list"], marks=pytest.mark.long),
        ("nova_workers.cli.__main__", "httpx2", ["chat"]),
        pytest.param("nova_workers.cli.__main__", "nova_workers.base.config.sections", ["up"], marks=pytest.mark.long),
        ("nova_workers.cli.__main__", "the end", ["version"]),
        ("nova_workers.devstack.__main__", "nova_workers.devstack.stack", []),
        ("nova_workers.devstack.__main__", "the end", ["--help"]),
        ("nova_workers.devstack.run_module", "uvicorn.config", ["uvicorn", "api.app:create_app", "--factory"]),
        (
            "nova_workers.devstack.run_module",
            "celery.app",
            ["nova_workers.devstack.run_celery", "beat.app:app", "beat"],
        ),
    ],
)
def test_ctrl_c_while_a_program_loads_or_ends_is_quiet(program: str, moment: str, arguments: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PRESSED, program, moment, *arguments],
        preexec_fn=_receive_interrupts,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (130, "")


def test_the_version_is_an_option_too() -> None:
    done = subprocess.run([*_NOVA, "--version"], capture_output=True, text=True, check=False)
    assert re.fullmatch(r"nova \d+\.\d+\.\d+\S*\n", done.stdout)
