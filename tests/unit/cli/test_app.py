import importlib
import os
import subprocess
import sys
from collections.abc import Callable

import pytest
import typer

from nova_workers.base.errors import InvalidInput, OutcomeUnknown, Unavailable
from nova_workers.cli.app import COMMANDS, Lazy, main
from nova_workers.cli.records.threads import describe_block
from nova_workers.cli.talk.send import parse_metadata

_HEAVY = ("pydantic", "httpx2", "celery", "sqlalchemy", "asyncpg", "redis", "rich", "fastapi", "anthropic")
_COUNT_HEAVY = f"""
import sys
sys.argv = ["nova", "--help"]
from nova_workers.cli.app import main
try:
    main()
finally:
    print("loaded:", [name for name in {_HEAVY!r} if name in sys.modules])
"""


def _nova(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "nova_workers.cli", *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True)


def test_help_loads_nothing_heavy() -> None:
    shown = subprocess.run([sys.executable, "-c", _COUNT_HEAVY], check=False, capture_output=True, text=True)
    assert "loaded: []" in shown.stdout


def test_help_lists_every_command() -> None:
    shown = _nova("--help").stdout
    for entry in COMMANDS:
        assert f"  {entry.name} " in shown


@pytest.mark.parametrize("entry", COMMANDS, ids=lambda entry: entry.name)
def test_every_entry_of_the_table_is_a_command_with_help(entry: Lazy) -> None:
    app: typer.Typer = importlib.import_module(entry.module).app
    command = typer.main.get_command(app)
    found = getattr(command, "commands", {}).get(entry.name, command)
    assert found.help


def test_a_mistyped_command_is_a_usage_error_with_a_hint() -> None:
    done = _nova("sned")
    assert done.returncode == 2
    assert "Did you mean 'send'?" in done.stderr


def test_a_wrong_option_value_is_a_usage_error() -> None:
    done = _nova("send", "hi", "--on-busy", "shout")
    assert done.returncode == 2
    assert "enqueue" in done.stderr


def test_a_setting_that_cannot_be_used_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_API__PORT", "many")
    done = _nova("runs", "list")
    assert done.returncode == 1
    assert "NOVA_API__PORT" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_metadata_values_are_json_if_they_parse() -> None:
    assert parse_metadata(["a=1", "b=x=y", 'c={"d":[true]}', "e="]) == {"a": 1, "b": "x=y", "c": {"d": [True]}, "e": ""}


@pytest.mark.parametrize("pair", ["a", "=1", ""])
def test_metadata_without_a_name_is_refused(pair: str) -> None:
    with pytest.raises(InvalidInput, match="NAME=VALUE"):
        parse_metadata([pair])


@pytest.mark.parametrize(
    ("block", "shown"),
    [
        ({"type": "text", "text": "hi"}, "hi"),
        ({"type": "tool_use", "name": "Read", "input": {"path": "a"}}, '→ Read {"path": "a"}'),
        ({"type": "tool_result", "content": "fine"}, "✓ fine"),
        ({"type": "tool_result", "content": [{"type": "text", "text": "no"}], "is_error": True}, "✗ no"),
        ({"type": "tool_result", "content": None}, "✓ "),
        ({"type": "image"}, "[image]"),
        ({}, "[None]"),
    ],
)
def test_a_content_block_is_shown_as_text(block: dict[str, object], shown: str) -> None:
    assert describe_block(block)[0] == shown


_COMPLETED = (
    (["nova", "cap"], "capabilities"),
    (["nova", "runs", "ca"], "cancel"),
    (["nova", "send", "hi", "--on-b"], "--on-busy"),
    (["nova", "send", "hi", "--on-busy", "st"], "steer"),
)


@pytest.mark.parametrize(
    ("shell", "words", "offered"),
    [
        # Each shell and each kind of word once; the other pairs are long.
        pytest.param(shell, words, offered, marks=() if at % 3 == number else pytest.mark.long)
        for number, shell in enumerate(("bash", "zsh", "fish"))
        for at, (words, offered) in enumerate(_COMPLETED)
    ],
)
def test_a_shell_completes_commands_options_and_their_values(shell: str, words: list[str], offered: str) -> None:
    line = " ".join(words)
    asked = {
        "bash": {"COMP_WORDS": line, "COMP_CWORD": str(len(words) - 1)},
        "zsh": {"_TYPER_COMPLETE_ARGS": line},
        "fish": {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
    }[shell]
    done = subprocess.run(
        [sys.executable, "-m", "nova_workers.cli"],
        env={**os.environ, **asked, "_NOVA_COMPLETE": f"complete_{shell}"},
        check=False,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert offered in done.stdout


@pytest.mark.parametrize(
    ("error", "code"),
    [(Unavailable("Nothing was written."), 1), (OutcomeUnknown("It may have been done.", may_be_written=True), 3)],
)
def test_a_script_sees_whether_what_it_requested_may_have_been_done(
    error: Unavailable, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(**_: object) -> None:
        raise error

    def get_command(_: object) -> Callable[..., None]:
        return fail

    monkeypatch.setattr(typer.main, "get_command", get_command)
    with pytest.raises(SystemExit) as left:
        main()
    assert left.value.code == code
    assert capsys.readouterr().err == f"nova: {error.message}\n"
