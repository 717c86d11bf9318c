"""Every cost of growth is measured on small sizes, drawn and put on the page. `make growth` measures the real ones."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench.growth.axes import AXES, measure_axis
from tests.bench.growth.costs import Axis, Cost, Operation
from tests.bench.growth.ground import lend_ground
from tests.bench.growth.picture import draw
from tests.bench.growth.report import MEASURED, Measured, write_page
from tests.bench.machine import Machine
from tests.bench.servers import Servers

_SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.fleet
@pytest.mark.timeout(240)
async def test_every_axis_is_measured_at_each_of_its_sizes(postgres_url_admin: str, redis_url: str) -> None:
    servers = await Servers.at(admin_url=postgres_url_admin, redis_url=redis_url, bare_redis_url=redis_url)
    async with lend_ground(servers, repeats=2, preloaded=True) as ground:
        axes = [await measure_axis(ground, name, growing.small) for name, growing in AXES.items()]

    for axis, growing in zip(axes, AXES.values(), strict=True):
        assert len(axis.rows) >= 3
        for operation, costs in axis.rows.items():
            assert tuple(costs) == growing.small, operation
            assert operation.unit != "ms" or all(0 < cost.least <= cost.value for cost in costs.values()), operation


_SUBMIT, _LIST = Operation("submit"), Operation("list", grows="It is all of them.")
_GROWN = Axis(
    "runs",
    "runs & turns",
    [
        Cost.of(_SUBMIT, 10, [0.001, 0.002, 0.003]),
        Cost.of(_SUBMIT, 100, [0.0019, 0.008, 0.009]),
        Cost.of(_LIST, 10, [0.002]),
        Cost.of(_LIST, 100, [0.009]),
    ],
)


def _measured(axis: Axis = _GROWN) -> Measured:
    return Measured(axis, Machine.this(), datetime.now(UTC), 1.0, 40)


def test_a_cost_that_grows_without_a_reason_fails_and_one_with_a_reason_has_it_on_the_page(tmp_path: Path) -> None:
    page = tmp_path / "growth.md"
    page.write_text("# Growth\n\n<!-- growth output -->\nold\n<!-- end of growth output -->\n\nEnd.\n")

    write_page(page, [_measured()])

    text = page.read_text()
    assert "| submit | 2 (1) | 8 (1.9) | flat |" in text
    assert "| list | 2 | 9 | 4.5 " in text
    assert "- list: It is all of them." in text
    assert (text.startswith("# Growth\n"), text.endswith("\n\nEnd.\n"), "old" in text) == (True, True, False)
    assert _measured().grown == []
    unexplained = [replace(cost, operation=Operation(cost.operation.name)) for cost in _GROWN.costs]
    assert _measured(replace(_GROWN, costs=unexplained)).grown == ["list"]


def test_figures_are_read_back_from_their_file_as_they_were_written() -> None:
    measured = _measured()

    assert MEASURED.validate_json(MEASURED.dump_json(measured)) == measured


def test_a_page_without_the_marks_is_refused(tmp_path: Path) -> None:
    page = tmp_path / "growth.md"
    page.write_text("# Growth\n")

    with pytest.raises(ValueError, match=r"needs one <!-- growth output -->"):
        write_page(page, [_measured()])


def test_the_picture_has_a_panel_for_each_axis_and_a_line_for_each_operation() -> None:
    memory = [Cost(Operation("memory", unit="KB"), size, 30.0, 30.0) for size in (10, 100)]
    drawing = ET.fromstring(draw([_GROWN, replace(_GROWN, costs=[*_GROWN.costs, *memory])]))

    assert len(drawing.findall(f"{_SVG}g")) == 2
    assert len(drawing.findall(f".//{_SVG}polyline")) == 4
    assert [text.text for text in drawing.findall(f".//{_SVG}text")].count("runs & turns") == 2
