"""Named parameters in SQL: `:run_id` instead of `$1`.

asyncpg binds by position only, and SQLAlchemy's ``text()`` would load SQLAlchemy into every process. A statement is
compiled once to positional form; its text stays the same, so asyncpg prepares it once a connection.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

# Alternatives in order: text that may contain a colon that is not a parameter, then a parameter, then refused text.
_TOKEN = re.compile(
    r"""
      (?<!\w)[eE]'(?:[^'\\]|\\.|'')*'         # a string with backslash escapes
    | '(?:[^']|'')*'                          # a string
    | "(?:[^"]|"")*"                          # a quoted identifier
    | (?<![\w$])\$(?P<tag>[^\W\d]\w*|)\$.*?\$(?P=tag)\$   # a dollar-quoted string
    | --[^\n]*                                # a comment to the end of the line
    | /\*(?:(?!/\*).)*?\*/                    # a block comment
    | ::|:=                                   # a cast, an assignment
    | (?<![\w:]):(?P<name>[^\W\d]\w*)         # a parameter
    | (?P<refused>(?<![\w$])\$\d+|/\*|['"])   # a positional parameter, a nested comment, an open quote
    """,
    re.VERBOSE | re.DOTALL,
)
_MOST_STATEMENTS = 4_096
"""Far more than exist. Statements must be constants: one with an interpolated value would be compiled at each call."""


@lru_cache(maxsize=_MOST_STATEMENTS)
def compile_statement(statement: str) -> tuple[str, tuple[str, ...]]:
    """Return a statement with `$1`, `$2`, … for its named parameters, and the names in that order.

    A name that occurs twice gets one number. Casts (`::text`), strings, quoted identifiers and comments are unchanged.

    Raises:
        ValueError: It has a positional parameter, a block comment inside another, or a quote that is not closed.
    """
    numbers: dict[str, int] = {}

    def replace(token: re.Match[str]) -> str:
        if token["refused"]:
            raise ValueError(
                f"{token['refused']!r} at character {token.start()} of SQL statement {_title(statement)}: write "
                "parameters as :name, close every quote, and put no comment into a comment."
            )
        name = token["name"]
        return f"${numbers.setdefault(name, len(numbers) + 1)}" if name else token[0]

    text = _TOKEN.sub(replace, statement)
    return text, tuple(numbers)


def bind(statement: str, values: Mapping[str, Any]) -> tuple[str, list[Any]]:
    """Return a statement in positional form, and its arguments.

    Raises:
        TypeError: A parameter has no value, or a value has no parameter.
        ValueError: As for `compile_statement`.
    """
    text, names = compile_statement(statement)
    if len(names) == len(values):
        try:
            return text, [values[name] for name in names]
        except KeyError:
            pass
    missing = ", ".join(repr(name) for name in names if name not in values)
    unknown = ", ".join(repr(name) for name in values if name not in names)
    problems = [f"no value for {missing}"] * bool(missing) + [f"no parameter named {unknown}"] * bool(unknown)
    raise TypeError(f"SQL statement {_title(statement)}: {' and '.join(problems)}.")


def _title(statement: str) -> str:
    """Return the name of the constant that holds a statement, looked up in the calling modules, and its first words."""
    beginning = repr(" ".join(statement.split())[:60])
    frame = inspect.currentframe()
    while frame is not None:
        for name, value in frame.f_globals.items():
            if value is statement:
                return f"{frame.f_globals['__name__']}.{name} ({beginning})"
        frame = frame.f_back
    return beginning
