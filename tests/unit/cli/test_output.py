import io
import json
import re
from datetime import UTC, datetime

import pytest
from rich.tree import Tree

from nova_workers.cli.terminal.chart import bar
from nova_workers.cli.terminal.output import Output, age, short, stamp
from nova_workers.cli.terminal.table_layout import Heading, lay_out
from nova_workers.contracts.bodies import Page
from nova_workers.contracts.http.wire import BulkCanceled
from tests.requirements import proves

RUN = "run_01KADN2Z5N3VE7G2V0V0XQ6T8S"


class Screen(io.StringIO):
    """A stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


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


def test_a_terminal_shows_ids_whole_cuts_texts_and_names_omitted_columns(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("NO_COLOR", "1")
    screen, notes = Screen(), io.StringIO()
    columns: tuple[Heading, ...] = ("id", "status", ("message", "text"), ("created", "spare"), ("cost", "spare"))
    rows = [(RUN, "succeeded", "words " * 20, "2026-03-01 12:00:00", "$0.0012 in all")]
    Output(json_mode=False, stdout=screen, stderr=notes).table(columns, rows)
    heading, _, line, *_ = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in screen.getvalue().splitlines()]
    assert heading.split() == ["id", "status", "message", "created"]
    assert line.split()[:2] == [RUN, "succeeded"]
    assert "words wor…" in line
    assert len(line) <= 80
    assert notes.getvalue() == "no room for: cost; a wider terminal or --json shows them\n"


def test_empty_columns_are_omitted_before_others() -> None:
    columns: tuple[Heading, ...] = ("id", ("active run", "spare"), ("updated", "spare"))
    layout = lay_out(columns, [(RUN, "", "2026-03-01 12:00:00")], width=52, gap=2)
    assert layout is not None
    assert (layout.widths, layout.left_out) == ({0: 30, 2: 19}, ("active run",))


def test_texts_share_the_remaining_width() -> None:
    columns: tuple[Heading, ...] = ("id", ("a", "text"), ("b", "text"), ("c", "text"))
    layout = lay_out(columns, [("x" * 10, "y" * 100, "y" * 15, "y" * 100)], width=80, gap=2)
    assert layout is not None
    assert layout.widths == {0: 10, 1: 25, 2: 15, 3: 24}
    assert sum(layout.widths.values()) + 3 * 2 == 80


def test_on_the_narrowest_terminal_an_id_wraps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "24")
    screen = Screen()
    Output(json_mode=False, stdout=screen, stderr=io.StringIO()).table(("id", "status"), [(RUN, "queued")])
    parts = [line.split("  ")[0].split()[0] for line in screen.getvalue().splitlines()[2:]]
    assert "".join(part for part in parts if part != "queued") == RUN


def test_a_time_is_shown_in_the_time_zone_that_is_meant() -> None:
    moment = datetime(2026, 3, 1, 23, 0, tzinfo=UTC)
    assert stamp(moment, zone="Asia/Kathmandu") == "2026-03-02 04:45:00"
    assert stamp(None, zone="Asia/Kathmandu") == ""


def test_a_cell_that_looks_like_markup_is_text() -> None:
    out, stdout = _output()
    out.table(("a",), [("[bold]no[/bold] :smile:",)])
    assert "[bold]no[/bold] :smile:" in stdout.getvalue()


def test_a_document_is_one_json_value() -> None:
    out, stdout = _output(json_mode=True)
    out.document(Page[BulkCanceled](items=[BulkCanceled(canceled=1, requested=0)]))
    assert json.loads(stdout.getvalue()) == {"items": [{"canceled": 1, "requested": 0}], "next_cursor": None}


def test_a_document_of_models_inside_a_mapping_is_json_too() -> None:
    out, stdout = _output(json_mode=True)
    out.document({"done": [BulkCanceled(canceled=1, requested=2)]})
    assert json.loads(stdout.getvalue()) == {"done": [{"canceled": 1, "requested": 2}]}


def test_a_line_of_a_stream_is_one_line() -> None:
    out, stdout = _output(json_mode=True)
    out.line({"text": "a\nb — ü"})
    assert stdout.getvalue() == '{"text":"a\\nb — ü"}\n'


def test_facts_without_a_value_are_left_out() -> None:
    out, stdout = _output()
    out.facts((("id", "x"), ("title", "")))
    assert "title" not in stdout.getvalue()


def test_a_duration_that_is_not_known_is_left_out() -> None:
    assert (age(None), age(61)) == ("", "1 min 1 s")


def test_lines_in_a_pipe_are_not_filled_up_with_blanks() -> None:
    out, stdout = _output()
    out.table(("name", "about"), [("a", "a long text"), ("long name", "b")])
    out.facts((("id", "x"), ("title", "long title")))
    out.render(Tree("root"))
    lines = stdout.getvalue().splitlines()
    assert lines[:3] == ["name       about", "a          a long text", "long name  b"]
    assert [line for line in lines if line != line.rstrip()] == []


@pytest.mark.parametrize(
    ("part", "whole", "filled"), [(0, 10, 0), (1, 1000, 1), (5, 10, 10), (10, 10, 20), (11, 10, 20), (3, 0, 0)]
)
def test_a_bar_shows_any_value_above_zero(part: float, whole: float, filled: int) -> None:
    drawn = bar(part, whole)
    assert len(drawn) == 20
    assert drawn.count("█") == filled


def test_a_long_text_becomes_one_short_line() -> None:
    assert short("a\n b\t c") == "a b c"
    assert len(short("x" * 100, 10)) == 10


def test_times_in_json_are_rfc_3339() -> None:
    out, stdout = _output(json_mode=True)

    class Moment(BulkCanceled):
        at: datetime

    out.line(Moment(canceled=0, requested=0, at=datetime(2025, 1, 2, tzinfo=UTC)))
    assert json.loads(stdout.getvalue())["at"] == "2025-01-02T00:00:00Z"


@proves("names.one-line")
def test_names_of_old_rows_reach_a_terminal_without_what_controls_it() -> None:
    out, written = _output()
    out.table(("name", "id"), [("a\x1b[31m\x9b\u202eb\nkey_2", "key_1"), ("plain", "key_3")])
    assert len(written.getvalue().splitlines()) == 3
    assert "a[31mb key_2" in written.getvalue()
