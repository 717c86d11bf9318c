"""Options and output that every list has."""

from collections.abc import Callable
from typing import Annotated, Generic, Literal, TypeVar

import typer
from pydantic import BaseModel

from nova_workers.cli.terminal.output import Output, Shown
from nova_workers.contracts.bodies import Page

LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="Most rows.")]
CursorOption = Annotated[str | None, typer.Option("--cursor", help="The next_cursor of the page before.")]

T = TypeVar("T")
M = TypeVar("M", bound=BaseModel)


class Column(Generic[T]):
    """A column of a table.

    Args:
        heading: What is above it.
        cell: Its value in a row.
        space: What happens to it if space is short; see `Heading`. None shows it whole.
    """

    def __init__(
        self, heading: str, cell: Callable[[T], Shown], space: Literal["text", "fold", "spare"] | None = None
    ) -> None:
        self.heading = heading if space is None else (heading, space)
        self.cell = cell


class Rows(Generic[T]):
    """How things are listed.

    Args:
        nothing: What is said if there are none.
        columns: The columns, in order.
    """

    def __init__(self, nothing: str, *columns: Column[T]) -> None:
        self.nothing = nothing
        self.columns = columns


def show_page(out: Output, page: Page[M], rows: Rows[M], *, nothing: str | None = None) -> None:
    """Write a page as a table, or whole as JSON; print how to get the next one.

    Args:
        out: Where to.
        rows: Its columns.
        nothing: What is said of no items, in place of what the rows say.
    """
    out.write(page, lambda out, page: _show(out, page, rows, rows.nothing if nothing is None else nothing))


def _show(out: Output, page: Page[M], rows: Rows[M], nothing: str) -> None:
    if not page.items:
        out.note(nothing)
        return
    out.table(
        [column.heading for column in rows.columns],
        [[column.cell(item) for column in rows.columns] for item in page.items],
    )
    if page.next_cursor:
        out.note(f"more: --cursor {page.next_cursor}")
