"""The table of scenarios in docs/chaos.md."""

from __future__ import annotations

from tests.chaos.runner.scenarios import SCENARIOS
from tests.support.data.documents import ROOT

PAGE = ROOT / "docs" / "chaos.md"
_HEAD = "| scenario | what happens | most likely to break | |\n| --- | --- | --- | --- |\n"


def scenario_table() -> str:
    """Return all scenarios with the invariants that they are most likely to break."""
    rows = (
        f"| `{each.name}` | {each.says} | {', '.join(each.proves)} | {'' if each.in_mix else 'alone'} |\n"
        for each in SCENARIOS.values()
    )
    return _HEAD + "".join(rows)


def table_of(page: str) -> str:
    """Return the table that a page has.

    Raises:
        ValueError: It has none.
    """
    return page[page.index(_HEAD) :].partition("\n\n")[0] + "\n"
