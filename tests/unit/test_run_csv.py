"""Runs as CSV: what a spreadsheet would compute is text, and what would break a line is quoted."""

from __future__ import annotations

import csv
import io
from datetime import UTC, datetime, timedelta

import pytest

from nova_workers.contracts.http.run_csv import MAX_TEXT_CHARS, csv_head, csv_rows
from nova_workers.contracts.http.wire import RunView, UsageView
from tests.requirements import proves

_AT = datetime(2026, 11, 1, 9, tzinfo=UTC)


def _run(text: str) -> RunView:
    return RunView(
        id="run_1", thread_id="thr_1", agent_id="nova", status="succeeded", queue="interactive", on_busy="enqueue",
        source="api", message=[{"type": "text", "text": text}], metadata={"customer": "42"}, attempt=1,
        created_at=_AT, started_at=_AT + timedelta(seconds=2), finished_at=_AT + timedelta(seconds=3.5),
        usage=UsageView(input_tokens=7, output_tokens=5, cost_usd=0.00001),
    )  # fmt: skip


@proves("runs.csv")
@pytest.mark.parametrize(
    ("text", "cell"),
    [
        ("=HYPERLINK(1)", "'=HYPERLINK(1)"),
        ("+1", "'+1"),
        ("-1", "'-1"),
        ("@SUM(A1)", "'@SUM(A1)"),
        ("\t=1", "'\t=1"),
        ("\r\n=1", "'\r\n=1"),
        ('He said "no", then\nleft', 'He said "no", then\nleft'),
        ("x" * (MAX_TEXT_CHARS + 1), "x" * (MAX_TEXT_CHARS - 1) + "…"),
    ],
)
def test_a_cell_is_text_whatever_it_begins_with(text: str, cell: str) -> None:
    written = csv_head() + csv_rows([_run(text)])
    (row,) = csv.DictReader(io.StringIO(written, newline=""), strict=True)
    assert row["message"] == cell
    assert (row["queued_s"], row["duration_s"], row["input_tokens"]) == ("2", "1.5", "7")
    assert (row["cost_usd"], row["metadata"], row["trigger_id"]) == ("0.00001", '{"customer": "42"}', "")
    assert written.endswith("\r\n")
