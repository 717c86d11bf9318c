"""Every promise has a test, and every proof a promise."""

from __future__ import annotations

import pytest

from tests.requirements import REQUIREMENTS, proves
from tests.support.data.claims import claims_in, proofs


def test_every_promise_is_proved_by_a_test():
    unproved = sorted(REQUIREMENTS.keys() - proofs().keys())
    assert not unproved, f"no test proves {unproved}"


def test_every_proof_names_a_promise():
    unknown = sorted(proofs().keys() - REQUIREMENTS.keys())
    assert not unknown, f"not promised in tests/requirements.py: {unknown}"


def test_a_test_cannot_prove_an_unknown_promise():
    with pytest.raises(KeyError, match="no-such-promise"):
        proves("no-such-promise")


def test_claims_are_read_from_the_source():
    source = "@proves('a', 'b')\nasync def test_x(): ...\n@other('c')\ndef test_y(): ...\n"
    source += "@proves('d')\n@pytest.mark.long\ndef test_z(): ...\n"
    assert list(claims_in(source)) == [("a", "test_x"), ("b", "test_x")]
