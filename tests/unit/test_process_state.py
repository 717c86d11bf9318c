"""A test that leaves the process changed for later tests is found."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path

import pytest
import structlog

from nova_workers.ledger.visibility import see_tenant
from tests.support.harness.process_state import ProcessState

_CHANGES: dict[str, Callable[[pytest.MonkeyPatch], object]] = {
    "context variables": lambda _: see_tenant("ten_left"),
    "environment": lambda patch: patch.setenv("NOVA_LEFT", "1"),
    "working directory": lambda patch: patch.chdir(Path("/")),
    "logging": lambda patch: patch.setattr(logging.root, "level", logging.DEBUG),
}


@pytest.mark.parametrize("name", _CHANGES)
def test_a_change_of_the_process_is_reported_once(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def report() -> list[list[str]]:
        state = ProcessState()
        _CHANGES[name](monkeypatch)
        return [state.changes(), state.changes()]

    (change,), later = copy_context().run(report)
    assert change.startswith(f"{name}: ")
    assert later == []


def test_names_that_structlog_has_unbound_are_no_change() -> None:
    def report() -> list[str]:
        state = ProcessState()
        with structlog.contextvars.bound_contextvars(run_id="run_1"):
            pass
        return state.changes()

    assert copy_context().run(report) == []
