"""Why an agent changed a file, from what it wrote and thought before."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from nova_workers.contracts.orchestration import HistoryEntry, Rationale
from nova_workers.domain.orchestrations.rules.rationale import LOOK_BACK, extract_rationale, score

AT = datetime(2026, 1, 1, tzinfo=UTC)


def text(said: str) -> HistoryEntry:
    return HistoryEntry("TEXT", "run_1", AT, said)


def thought(said: str) -> HistoryEntry:
    return HistoryEntry("THINKING", "run_1", AT, said)


def tool(name: str, call_id: str = "c1", **params: Any) -> HistoryEntry:
    return HistoryEntry("TOOL_CALL", "run_1", AT, call_id=call_id, tool_name=name, params=params)


@pytest.mark.parametrize(
    ("said", "points"),
    [
        ("Nothing of note here.", 0),
        ("This fixes it.", 3),
        ("A bug.", 3),
        ("Fixed the bug, fixing it twice.", 6),
        ("I am improving the names.", 2),
        ("It prevents a crash because of a race.", 6),
        ("A prefix of a debugger.", 0),
    ],
)
def test_words_that_give_a_reason_are_counted_once_each_with_their_endings(said: str, points: int) -> None:
    assert score(said) == points


def test_the_text_with_the_highest_score_before_a_call_is_its_rationale() -> None:
    entries = [
        text("Let me improve it."),
        thought("The bug is an off-by-one; I fix it."),
        text("Now I write."),
        tool("Edit", file_path="/a.py"),
    ]
    assert extract_rationale(entries, 3) == Rationale("The bug is an off-by-one; I fix it.", 6)


def test_of_equal_texts_the_nearest_is_taken_and_what_comes_after_never() -> None:
    entries = [text("Fix one."), text("Fix two."), tool("Edit", file_path="/a.py"), text("Fix the bug three.")]
    assert extract_rationale(entries, 2) == Rationale("Fix two.", 3)


def test_a_rationale_is_looked_for_in_ten_entries() -> None:
    filler = [text("Hm.")] * LOOK_BACK
    entries = [text("Fix the bug."), *filler, tool("Edit", file_path="/a.py")]
    assert extract_rationale(entries, len(entries) - 1) is None
    assert extract_rationale([entries[0], *entries[2:]], len(entries) - 2) == Rationale("Fix the bug.", 6)


def test_messages_and_results_of_tools_are_no_rationale() -> None:
    entries = [HistoryEntry("USER_MESSAGE", "run_1", AT, "Fix the bug."), tool("Write", file_path="/a.py")]
    assert extract_rationale(entries, 1) is None
