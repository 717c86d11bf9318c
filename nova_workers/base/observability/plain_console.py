"""structlog's lines for people, without colours: what goes into a file or a pipe."""

import re
from typing import Final

from structlog.dev import Column, ConsoleRenderer, plain_traceback

_QUOTED: Final = re.compile(r"[ \t\r\n=\"']")
"""Characters of a text that is shown with quotation marks."""


def plain_console() -> ConsoleRenderer:
    """Return a renderer whose lines are those of ``ConsoleRenderer(colors=False)``.

    That one puts each column together in a file in memory, to place the codes of colours that are empty here: half of
    the CPU of a line.
    """
    columns = [
        Column("timestamp", _value),
        Column("level", _level),
        Column("event", _event),
        Column("logger", _bracketed),
        Column("logger_name", _bracketed),
        Column("", _pair),
    ]
    return ConsoleRenderer(columns=columns, exception_formatter=plain_traceback)


def _value(key: str, value: object) -> str:
    return str(value)


def _level(key: str, value: object) -> str:
    return f"[{value:<9}]"


def _event(key: str, value: object) -> str:
    return f"{value!s:<30}"


def _bracketed(key: str, value: object) -> str:
    return f"[{value}]"


def _pair(key: str, value: object) -> str:
    # Not formatted into a string: that would call the `__format__` of an enumeration of strings.
    return f"{key}=" + (value if isinstance(value, str) and not _QUOTED.search(value) else repr(value))
