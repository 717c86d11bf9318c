"""Tests wait for what they need, with a bound, and never for a fixed time: that time is too short one day."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]

_NOT_CHECKED = ("bench", "browser/measures.py", "chaos/runner", "support/servers")
"""Code that measures times, faults that last for a time, and deliberately slow servers."""
_FOR_EVER_S = 60
"""Longer than a test may take: what a test ends, not what it waits for."""

# By function, with the reason.
_MAY_SLEEP = {
    # A commit or a response that takes a while: the test acts in the meantime.
    "contract/engines/test_stopping.py: on_tool_result",
    "contract/engines/test_stopping.py: on_tool_calls",
    # A function that takes its time before it answers, as a model does.
    "contract/engines/code_stage.py: play",
    # A load is spread over time; nothing depends on how long it takes.
    "unit/streams/test_hub.py: test_followers_keep_receiving_while_many_others_join_and_leave",
    "unit/streams/test_hub.py: test_followers_that_join_and_leave_at_any_moment_each_see_everything",
    # A client that reads slowly.
    "support/harness/run_reader.py: _connect",
}


def _sleeps(node: ast.AST, function: str = "") -> Iterator[tuple[str, int]]:
    """Yield sleeps, with their functions, that neither repeat a question, nor yield to the loop, nor last for ever."""
    for child in ast.iter_child_nodes(node):
        match child:
            case ast.While():
                continue
            case ast.Call(func=ast.Attribute(attr="sleep"), args=[ast.Constant(value=int(seconds) | float(seconds))]):
                if 0 < seconds < _FOR_EVER_S:
                    yield function, child.lineno
            case ast.Call(func=ast.Attribute(attr="sleep")):
                yield function, child.lineno
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield from _sleeps(child, name)
            case _:
                yield from _sleeps(child, function)


def test_no_test_waits_for_a_fixed_time() -> None:
    found: dict[str, int] = {}
    for path in sorted(TESTS.rglob("*.py")):
        name = path.relative_to(TESTS).as_posix()
        if not name.startswith(_NOT_CHECKED):
            found |= {f"{name}: {function}": line for function, line in _sleeps(ast.parse(path.read_text()))}
    new = {where: line for where, line in found.items() if where not in _MAY_SLEEP}
    assert not new, f"wait with `until` or `stays` of tests/support/waiting.py, or by an injected clock: {new}"
    assert _MAY_SLEEP <= found.keys(), "these no longer sleep"
