import io
import json
from datetime import UTC, datetime

import pytest

from nova_workers.cli.chart import bar
from nova_workers.cli.output import Output, age, short
from nova_workers.contracts.wire import BulkCancelled, Page


def _output(*, json_mode: bool = False) -> tuple[Output, io.StringIO]:
    stdout = io.StringIO()
    return Output(json_mode=json_mode, stdout=stdout, stderr=io.StringIO()), stdout


def test_a_table_in_a_pipe_cuts_nothing() -> None:
    out, stdout = _output()
    out.table(("id", ("title", "fold")), [("thr_" + "x" * 90, "y" * 300), ("thr_2", "z")])
    lines = stdout.getvalue().splitlines()
    assert len(lines) == 3
    assert "thr_" + "x" * 90 in lines[1]
    assert "y" * 300 in lines[1]
    assert "\x1b" not in stdout.getvalue()


def test_a_cell_that_looks_like_markup_is_text() -> None:
    out, stdout = _output()
    out.table(("a",), [("[bold]no[/bold] :smile:",)])
    assert "[bold]no[/bold] :smile:" in stdout.getvalue()


def test_a_document_is_one_json_value() -> None:
    out, stdout = _output(json_mode=True)
    out.document(Page[BulkCancelled](items=[BulkCancelled(canceled=1, requested=0)]))
    assert json.loads(stdout.getvalue()) == {"items": [{"canceled": 1, "requested": 0}], "next_cursor": None}


def test_a_document_of_models_inside_a_mapping_is_json_too() -> None:
    out, stdout = _output(json_mode=True)
    out.document({"done": [BulkCancelled(canceled=1, requested=2)]})
    assert json.loads(stdout.getvalue()) == {"done": [{"canceled": 1, "requested": 2}]}


def test_a_line_of_a_stream_is_one_line() -> None:
    out, stdout = _output(json_mode=True)
    out.line({"text": "a\nb — ü"})
    assert stdout.getvalue() == '{"text":"a\\nb — ü"}\n'


def test_facts_without_a_value_are_left_out() -> None:
    out, stdout = _output()
    out.facts((("id", "x"), ("title", "")))
    assert "title" not in stdout.getvalue()


@pytest.mark.parametrize(
    ("seconds", "told"),
    [(None, ""), (0.04, "0.0 s"), (59.94, "59.9 s"), (60, "1 min 0 s"), (3_725, "1 h 2 min"), (200_000, "2 d 7 h")],
)
def test_a_duration_is_told_in_two_units(seconds: float | None, told: str) -> None:
    assert age(seconds) == told


@pytest.mark.parametrize(
    ("part", "whole", "filled"), [(0, 10, 0), (1, 1000, 1), (5, 10, 10), (10, 10, 20), (11, 10, 20), (3, 0, 0)]
)
def test_a_bar_shows_anything_above_nothing(part: float, whole: float, filled: int) -> None:
    drawn = bar(part, whole)
    assert len(drawn) == 20
    assert drawn.count("█") == filled


def test_a_long_text_becomes_one_short_line() -> None:
    assert short("a\n b\t c") == "a b c"
    assert len(short("x" * 100, 10)) == 10


def test_times_in_json_are_rfc_3339() -> None:
    out, stdout = _output(json_mode=True)

    class Moment(BulkCancelled):
        at: datetime

    out.line(Moment(canceled=0, requested=0, at=datetime(2025, 1, 2, tzinfo=UTC)))
    assert json.loads(stdout.getvalue())["at"] == "2025-01-02T00:00:00Z"
