"""What commands print: tables and notes for people, JSON for programs.

Answers go to stdout, everything about them to stderr, so that a pipe carries the answer alone. With ``--json``
stdout carries one JSON document, or one JSON object a line for a stream, and never a control sequence.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Annotated, Any, TextIO, TypeVar
from zoneinfo import ZoneInfo

import typer
from pydantic import BaseModel

from nova_workers.base.clock import spell_duration
from nova_workers.cli.terminal.table_layout import Heading

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from nova_workers.cli.terminal.renderer import Renderer

__all__ = ["Facts", "Heading", "JsonOption", "Output", "Shown", "age", "money", "printable", "short", "stamp"]

Shown = str | int | datetime | None
"""A value that is shown: a time in the local zone, None as nothing."""
Facts = Iterable[tuple[str, Shown]]
"""Names and values of a thing; those without a value are left out."""

V = TypeVar("V", bound=BaseModel | Mapping[str, Any] | Sequence[Any])

_DIRECTIONS = (*range(0x2028, 0x202F), *range(0x2066, 0x206A))
"""Ends of lines, and marks that show the text after them in another order."""
_UNPRINTABLE = {code: None for code in (*range(32), *range(127, 160), *_DIRECTIONS) if chr(code) not in "\n\t"}
_LINE_ENDS = str.maketrans("\n\t", "  ")

JsonOption = Annotated[bool, typer.Option("--json", help="Write JSON: one document, or one object a line for streams.")]

_RENDERER = "nova_workers.cli.terminal.renderer"


def printable(text: str) -> str:
    """Return text without control characters: output of a model or tool must not control the terminal."""
    return text.translate(_UNPRINTABLE)


def short(text: str, length: int = 60) -> str:
    """Return text as one line of at most `length` characters."""
    line = " ".join(printable(text).split())
    return line if len(line) <= length else line[: length - 1] + "…"


def stamp(moment: datetime | None, *, zone: str | None = None) -> str:
    """Return a time to the second, in the local zone or that of an IANA name."""
    if moment is None:
        return ""
    return moment.astimezone(ZoneInfo(zone) if zone else None).strftime("%Y-%m-%d %H:%M:%S")


def age(seconds: float | None) -> str:
    """Return a duration in its two largest units, rounded as people say it; empty for None."""
    return "" if seconds is None else spell_duration(seconds)


def money(usd: float | None) -> str:
    """Return a cost as text, or 'cost unknown'."""
    if usd is None:
        return "cost unknown"
    return f"${usd:.2f}" if usd >= 1 else f"${usd:.4f}"


class Output:
    """The two streams of a command.

    Attributes:
        json: Whether stdout carries JSON.
        tty: Whether stdout is a terminal.
    """

    def __init__(self, *, json_mode: bool, stdout: TextIO | None = None, stderr: TextIO | None = None) -> None:
        self.stdout = stdout or sys.stdout
        self.stderr = stderr or sys.stderr
        self.json = json_mode
        self.tty = self.stdout.isatty() and not json_mode

    @cached_property
    def _renderer(self) -> Renderer:
        # A command that has nothing to show yet sends its request meanwhile.
        made: Renderer = import_module(_RENDERER).Renderer(self.stdout, self.stderr, tty=self.tty)
        return made

    @property
    def console(self) -> Console:
        """The rich console of stdout."""
        return self._renderer.console

    @property
    def width(self) -> int | None:
        """Columns of the terminal; None if stdout is not a terminal."""
        return self.console.width if self.tty else None

    def document(self, value: BaseModel | Mapping[str, Any] | Sequence[Any]) -> None:
        """Write one JSON document."""
        self.stdout.write(json.dumps(_plain(value), ensure_ascii=False, indent=2) + "\n")

    def line(self, value: BaseModel | Mapping[str, Any]) -> None:
        """Write one line of a JSON stream, at once."""
        self.stdout.write(json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":")) + "\n")
        self.stdout.flush()

    def text(self, text: str = "", style: str = "") -> None:
        """Write a line of the answer. A pipe gets it unchanged."""
        if not self.tty:
            self.stdout.write(text + "\n")
            return
        self._renderer.text(printable(text), style)

    def render(self, renderable: RenderableType) -> None:
        """Write a rich renderable without control characters."""
        self._renderer.render(renderable)

    def note(self, text: str, style: str = "dim") -> None:
        """Write a line about the answer, to stderr."""
        self._renderer.note(printable(text), style)

    def write(self, value: V, show: Callable[[Output, V], None]) -> None:
        """Write the result of a command: as one JSON document, or by what shows it to people."""
        if self.json:
            self.document(value)
        else:
            show(self, value)

    def record(self, value: V, facts: Callable[[V], Facts]) -> None:
        """Write a thing: its facts, or the whole as one JSON document."""
        self.write(value, lambda out, thing: out.facts(facts(thing)))

    def done(self, value: BaseModel | Mapping[str, Any], sentence: str, *, about: str = "", style: str = "dim") -> None:
        """Write what a command did: a sentence, or the value as one JSON document.

        Args:
            value: The result.
            sentence: What people read.
            about: A note to it.
            style: Of the note.
        """
        if self.json:
            self.document(value)
            return
        self.text(sentence)
        if about:
            self.note(about, style)

    def table(self, columns: Sequence[Heading], rows: Iterable[Sequence[Shown]]) -> None:
        """Write a table. In a pipe: aligned columns, nothing cut, no frame. A terminal gets what fits."""
        # A name of an old row may have more than one line, which would look like another row.
        cells = [[printable(_shown(cell)).translate(_LINE_ENDS) for cell in row] for row in rows]
        left_out = self._renderer.table(columns, cells)
        if left_out:
            self.note(f"no room for: {', '.join(left_out)}; a wider terminal or --json shows them")

    def facts(self, pairs: Facts) -> None:
        """Write names and values, one pair a line; a pair without a value is left out."""
        shown = ((name, _shown(value)) for name, value in pairs)
        self._renderer.facts((name, printable(text)) for name, text in shown if text)


def _shown(value: Shown) -> str:
    if value is None:
        return ""
    return stamp(value) if isinstance(value, datetime) else str(value)


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}  # pyright: ignore[reportUnknownArgumentType] - elements of any type
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]  # pyright: ignore[reportUnknownVariableType] - elements of any type
    return value
