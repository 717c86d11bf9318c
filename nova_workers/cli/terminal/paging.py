"""Options and output that every list has."""

from collections.abc import Callable, Sequence
from typing import Annotated, TypeVar

import typer
from pydantic import BaseModel

from nova_workers.cli.terminal.output import Column, Output
from nova_workers.contracts.bodies import Page

__all__ = ["CursorOption", "LimitOption", "show_page"]

LimitOption = Annotated[int, typer.Option("--limit", "-n", min=1, max=200, help="Most rows.")]
CursorOption = Annotated[str | None, typer.Option("--cursor", help="The next_cursor of the page before.")]

T = TypeVar("T", bound=BaseModel)


def show_page(
    out: Output, page: Page[T], columns: Sequence[Column], row: Callable[[T], Sequence[str]], *, nothing: str
) -> None:
    """Write a page as a table, or whole as JSON; print how to get the next one."""
    if out.json:
        out.document(page)
        return
    if not page.items:
        out.note(nothing)
        return
    out.table(columns, [row(item) for item in page.items])
    if page.next_cursor:
        out.note(f"more: --cursor {page.next_cursor}")
