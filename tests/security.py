"""`make security`: run the tests that the threat model of docs/security.md names. Arguments are pytest's."""

import sys

import pytest

from tests.support.data.claims import proofs
from tests.support.data.threat_model import walls


def hostile_tests() -> list[str]:
    """Return the tests that prove the walls, as pytest names them."""
    named = {promise for wall in walls() for promise in wall.promises}
    return sorted({test for promise in named for test in proofs()[promise]})


if __name__ == "__main__":
    sys.exit(pytest.main([*sys.argv[1:], *hostile_tests()]))
