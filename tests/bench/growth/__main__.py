"""Measure what each operation costs at growing sizes, and draw it.

    python -m tests.bench.growth [--only AXIS]… [--most AXIS=SIZE]… [--small] [--write]

Starts its own servers, on data that is deleted at the end. Exits with 1 if a cost grows that must not.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop
from rich.console import Console
from rich.markdown import Markdown

from nova_workers.base.program import collect_seldom
from tests.bench.growth.axes import AXES, measure_axis
from tests.bench.growth.ground import lend_ground
from tests.bench.growth.picture import draw
from tests.bench.growth.report import MEASURED, Measured, to_markdown, write_page
from tests.bench.machine import Machine
from tests.bench.servers import Servers, bench_servers

_DOCS = Path(__file__).resolve().parents[3] / "docs"
_FIGURES = Path(".cache/growth")
"""The newest figures of each axis: the page may have some of another day."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    # Without the developer's own settings.
    for name in [name for name in os.environ if name.startswith(("NOVA_", "ANTHROPIC_"))]:
        del os.environ[name]
    sizes = {name: AXES[name].small if options.small else AXES[name].sizes for name in options.only or AXES}
    for name, most in options.most or ():
        sizes[name] = tuple(size for size in sizes[name] if size <= most)
    _FIGURES.mkdir(parents=True, exist_ok=True)
    with bench_servers(options.home) as servers:
        measured = uvloop.run(_measure(servers, sizes, options.repeats, Console(stderr=True)))
    Console().print(Markdown(to_markdown(measured)))
    if options.write:
        _write_documents()
    return 1 if any(each.grown for each in measured) else 0


async def _measure(
    servers: Servers, sizes: Mapping[str, Sequence[int]], repeats: int, console: Console
) -> list[Measured]:
    measured: list[Measured] = []
    for name, of_axis in sizes.items():
        console.print(f"{name}: {', '.join(f'{size:,}' for size in of_axis)} …", style="dim")
        machine, began_at, began_s = Machine.this(), datetime.now(UTC), time.perf_counter()
        async with lend_ground(servers, repeats=repeats) as ground:
            axis = await measure_axis(ground, name, of_axis)
        measured.append(Measured(axis, machine, began_at, time.perf_counter() - began_s, repeats))
        # A later failure does not lose the figures.
        (_FIGURES / f"{name}.json").write_bytes(MEASURED.dump_json(measured[-1], indent=1))
    return measured


def _write_documents() -> None:
    """Write the page and the picture from the newest figures of each axis."""
    files = [_FIGURES / f"{name}.json" for name in AXES]
    measured = [MEASURED.validate_json(file.read_bytes()) for file in files if file.exists()]
    write_page(_DOCS / "growth.md", measured)
    (_DOCS / "pictures" / "growth.svg").write_text(draw([each.axis for each in measured]), "utf-8")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make growth", description=__doc__.partition("\n")[0] if __doc__ else None)
    names = ", ".join(AXES)
    parser.add_argument("--only", action="append", choices=tuple(AXES), metavar="AXIS", help=f"one of {names}")
    parser.add_argument("--most", action="append", type=_size, metavar="AXIS=SIZE", help="leave larger sizes out")
    parser.add_argument("--small", action="store_true", help="sizes that only prove that it runs")
    parser.add_argument("--repeats", type=int, default=40, help="of each operation at each size (default: 40)")
    parser.add_argument("--write", action="store_true", help="put tables and picture into docs/growth.md")
    parser.add_argument("--home", type=Path, metavar="FOLDER", help="put the servers' data on this disk")
    return parser


def _size(text: str) -> tuple[str, int]:
    name, equals, size = text.partition("=")
    if not equals or name not in AXES or not size.isdigit():
        raise argparse.ArgumentTypeError(f"{text!r} is not AXIS=SIZE, such as runs=1000000; axes: {', '.join(AXES)}")
    return name, int(size)


if __name__ == "__main__":
    # As the processes of the fleet: a collection during a measurement would count for the statement.
    collect_seldom()
    sys.exit(main())
