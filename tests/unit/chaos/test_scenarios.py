"""The page of scenarios is that of the registry."""

from __future__ import annotations

from tests.chaos.checker import INVARIANTS
from tests.chaos.runner.scenarios import SCENARIOS
from tests.chaos.runner.scenarios.table import PAGE, scenario_table, table_of


def test_the_page_has_every_scenario() -> None:
    shown = table_of(PAGE.read_text("utf-8"))
    assert shown == scenario_table(), "write it anew: python -m tests.chaos.runner --write-table"


def test_the_page_has_every_promise() -> None:
    page = PAGE.read_text("utf-8")
    assert all(f"| {invariant} | {says} |" in page for invariant, says in INVARIANTS.items())


def test_every_scenario_names_promises_that_are_checked() -> None:
    assert {promise for each in SCENARIOS.values() for promise in each.proves} <= INVARIANTS.keys()
