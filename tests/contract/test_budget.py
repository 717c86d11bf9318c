"""What `make test` may start: CI has minutes for it, on two cores."""

from __future__ import annotations

import pytest

_MOST_FLEETS = 40
"""Each costs 5 to 20 s of CPU. Rather than raise it, let a fleet show two things, or leave one to `make test-long`."""
_HAVE_ONE = (
    "tests/browser/",
    "tests/integration/cli/",
    "tests/integration/console/browser/test_chat_of_fleet.py",
    "tests/integration/console/test_client_lines.py",
)
"""Folders and modules with one fleet for all of their tests."""


def test_the_fleets_of_make_test_are_few(request: pytest.FixtureRequest) -> None:
    """Counts all of them where all tests were collected, as `make test` does."""
    tests = [
        item.nodeid
        for item in request.session.items
        if item.get_closest_marker("fleet")
        and not (item.get_closest_marker("long") or item.get_closest_marker("bench"))
    ]
    fleets = {next((one for one in _HAVE_ONE if test.startswith(one)), test) for test in tests}
    assert len(fleets) <= _MOST_FLEETS, sorted(fleets)
