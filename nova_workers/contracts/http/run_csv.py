"""Runs as CSV (RFC 4180), for spreadsheets."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from nova_workers.contracts.content import text_of
from nova_workers.contracts.http.wire import RunView

MAX_ROWS: Final = 10_000
"""Most runs of one file."""
MAX_TEXT_CHARS: Final = 2_000
"""A longer message or error is cut, with an ellipsis."""

# A spreadsheet computes a cell that begins so; behind an apostrophe it is text.
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")

_Cell = str | float | datetime | None
_COLUMNS: Final[Mapping[str, Callable[[RunView], _Cell]]] = {
    "id": lambda run: run.id,
    "status": lambda run: run.status,
    "agent_id": lambda run: run.agent_id,
    "thread_id": lambda run: run.thread_id,
    "source": lambda run: run.source,
    "trigger_id": lambda run: run.trigger_id,
    "model": lambda run: run.model,
    "message": lambda run: _cut(text_of(tuple(run.message))),
    "error": lambda run: _cut(run.error.message) if run.error else None,
    "created_at": lambda run: run.created_at,
    "started_at": lambda run: run.started_at,
    "finished_at": lambda run: run.finished_at,
    "queued_s": lambda run: _seconds(max(run.created_at, run.start_at or run.created_at), run.started_at),
    "duration_s": lambda run: _seconds(run.started_at, run.finished_at),
    "input_tokens": lambda run: run.usage.input_tokens if run.usage else None,
    "output_tokens": lambda run: run.usage.output_tokens if run.usage else None,
    "cost_usd": lambda run: run.usage.cost_usd if run.usage else None,
    "metadata": lambda run: json.dumps(run.metadata, ensure_ascii=False) if run.metadata else None,
}


def csv_head() -> str:
    """Return the first line: the names of the columns."""
    return _lines([list(_COLUMNS)])


def csv_rows(runs: Iterable[RunView]) -> str:
    """Return a line for each run. Times are in UTC; what is not known is empty."""
    return _lines([_written(cell(run)) for cell in _COLUMNS.values()] for run in runs)


def _lines(rows: Iterable[list[str]]) -> str:
    out = io.StringIO()
    csv.writer(out, lineterminator="\r\n").writerows(rows)
    return out.getvalue()


def _written(value: _Cell) -> str:
    if value is None:
        return ""
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    return f"{value:.10f}".rstrip("0").rstrip(".") if isinstance(value, float) else str(value)


def _cut(text: str) -> str:
    return text if len(text) <= MAX_TEXT_CHARS else text[: MAX_TEXT_CHARS - 1] + "…"


def _seconds(begin: datetime | None, end: datetime | None) -> float | None:
    return None if begin is None or end is None else round((end - begin).total_seconds(), 3)
