"""Lines without colours are those of structlog's own renderer."""

from __future__ import annotations

import sys
from enum import Enum
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from structlog.dev import ConsoleRenderer, plain_traceback

from nova_workers.base.observability.plain_console import plain_console

_THEIRS = ConsoleRenderer(colors=False, exception_formatter=plain_traceback)


class Status(str, Enum):  # noqa: UP042 - formatted it is its name, unlike a StrEnum
    DONE = "done"


_TEXTS = st.text(alphabet="ab =\"'\t\r\né€.", max_size=40)
_VALUES = st.one_of(
    _TEXTS, st.integers(), st.none(), st.booleans(), st.floats(), st.lists(_TEXTS, max_size=2), st.just(Status.DONE)
)
_COLUMNS = st.fixed_dictionaries(
    {},
    optional={
        "timestamp": _TEXTS,
        "level": st.sampled_from(["debug", "info", "warning", "error", "critical", "Level 25"]),
        "event": _VALUES,
        "logger": _TEXTS,
        "logger_name": _TEXTS,
        "stack": _TEXTS,
        "exception": _TEXTS,
    },
)


@given(_COLUMNS, st.dictionaries(st.text(alphabet="abc_", min_size=1, max_size=8), _VALUES, max_size=6))
def test_a_line_is_that_of_structlog_without_colours(columns: dict[str, Any], fields: dict[str, Any]) -> None:
    line = {**fields, **columns}
    assert plain_console()(None, "info", dict(line)) == _THEIRS(None, "info", dict(line))


def test_a_traceback_is_that_of_structlog_without_colours() -> None:
    try:
        raise ValueError("bad")
    except ValueError:
        line = {"event": "failed", "exc_info": sys.exc_info()}
    shown = plain_console()(None, "error", dict(line))
    assert shown == _THEIRS(None, "error", dict(line))
    assert shown.endswith("ValueError: bad")
