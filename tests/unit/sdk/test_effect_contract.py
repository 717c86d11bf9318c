"""The contract of effects: the example fulfils it, and each kind of wrong effect is found.

The fleet's own effects are not among them: they are no functions in a process of their own, but handlers that get
batches and the ledger (`domain.effects.rules.handler`), and have their tests in `tests/integration/effects`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from nova_workers.contracts.ended_runs import EndedRun
from nova_workers.sdk.testing.effect_process import Call, EffectProcess
from nova_workers.sdk.testing.effects import EffectContract, ended_run
from tests.requirements import proves
from tests.support.data.example_package import PACKAGE, load

_WRONG = '''\
import os
from pathlib import Path

from nova_workers.sdk import EndedRun, ToolContext, effect


def _file(context):
    folder = Path(context.secret("FOLDER"))
    if (folder / "broken").exists():
        raise OSError(f"no space for {context.secret('TOKEN')}")
    return folder / context.run_id


def _add(path):
    with path.open("a") as file:
        file.write("done\\n")


@effect
def right(run: EndedRun, context: ToolContext) -> None:
    """Write a file under a name of its own."""
    try:
        path = _file(context)
    except OSError:
        raise OSError("no space") from None
    path.write_text("done\\n")


@effect
def adds(run: EndedRun, context: ToolContext) -> None:
    """Add a line with each call."""
    _add(_file(context))


@effect
async def adds_unless_there(run: EndedRun, context: ToolContext) -> None:
    """Look, and add a line after that."""
    path = _file(context)
    if not path.exists():
        _add(path)


@effect
def marks_first(run: EndedRun, context: ToolContext) -> None:
    """Record that it is done, and do it after that."""
    path = _file(context)
    try:
        os.close(os.open(path.with_suffix(".mark"), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    _add(path)


@effect
def swallows(run: EndedRun, context: ToolContext) -> None:
    """Let no error out."""
    try:
        _file(context).write_text("done\\n")
    except OSError:
        pass


@effect
def needs_text(run: EndedRun, context: ToolContext) -> None:
    """Take the first word of the answer."""
    first = run.text.split()[0]
    _file(context).write_text("done\\n")
'''

_REPEATED = EffectContract.test_a_repeated_call_changes_nothing
_KILLED = EffectContract.test_a_killed_call_is_completed_by_the_next
_OVERTAKEN = EffectContract.test_a_call_that_was_given_up_may_go_on_after_the_next
_FAILURE = EffectContract.test_a_failure_is_raised_and_a_later_call_succeeds
_SECRETS = EffectContract.test_no_secret_is_written_out
_TAKEN = partial(EffectContract.test_every_ended_run_is_taken, changed="empty")


class _Folder:
    """A place of files, one for each run."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.secrets = {"FOLDER": str(folder), "TOKEN": "token-41c9d2"}

    def outcome(self, run: EndedRun) -> str | None:
        file = self._folder / run.run_id
        return file.read_text() if file.exists() else None

    @contextmanager
    def broken(self) -> Generator[None]:
        (self._folder / "broken").touch()
        yield
        (self._folder / "broken").unlink()


class TestTheExample(EffectContract):
    """Of `docs/examples/package`."""

    @pytest.fixture(scope="class", autouse=True)
    @staticmethod
    def _importable(request: pytest.FixtureRequest) -> Iterator[None]:
        tests: Any = request.cls
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(PACKAGE)
            tests.effect = staticmethod(import_module("acme_desk.effects").log_run)
            yield

    @pytest.fixture
    def place(self) -> Iterator[Any]:
        with load(PACKAGE / "tests" / "desk.py").Desk() as desk:
            yield desk


@pytest.fixture(scope="module")
def wrong(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EffectProcess]:
    """The process of a module with wrong effects."""
    folder = tmp_path_factory.mktemp("wrong")
    (folder / "wrong_effects.py").write_text(_WRONG)
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        with EffectProcess("wrong_effects") as process:
            yield process
    sys.modules.pop("wrong_effects", None)


@proves("effects.contract")
@pytest.mark.parametrize(
    ("name", "check", "problem"),
    [
        ("right", _REPEATED, None),
        ("right", _KILLED, None),
        ("right", _OVERTAKEN, None),
        ("right", _FAILURE, None),
        ("right", _SECRETS, None),
        ("right", _TAKEN, None),
        ("adds", _REPEATED, r"second call with the same key"),
        ("adds_unless_there", _REPEATED, None),
        # Between the file and its line.
        ("adds_unless_there", _KILLED, r"killed at point \d+ of \d+, and called again"),
        ("adds_unless_there", _OVERTAKEN, r"stopped at point \d+ of \d+, another one was made, and the first went on"),
        ("marks_first", _REPEATED, None),
        ("marks_first", _KILLED, r"killed at point \d+ of \d+, and called again"),
        ("swallows", _FAILURE, r"looks like one that succeeded"),
        ("needs_text", _TAKEN, r"IndexError: list index out of range"),
        ("adds", _SECRETS, r"The values of TOKEN are in"),
    ],
)
def test_the_contract_finds_what_is_wrong_with_an_effect(
    name: str, check: Callable[..., None], problem: str | None, wrong: EffectProcess, tmp_path: Path
) -> None:
    place = _Folder(tmp_path)

    def call(run: EndedRun, **at: int) -> Call:
        return wrong.call(name, run, f"eff_{run.run_id}", place.secrets, **at)

    offered = {"call": call, "place": place, "make_run": ended_run, "effect_process": wrong}
    asked = inspect.signature(check).parameters
    checked = partial(check, EffectContract(), **{each: offered[each] for each in offered.keys() & asked.keys()})
    if problem is None:
        checked()
        return
    with pytest.raises(AssertionError, match=problem):
        checked()
