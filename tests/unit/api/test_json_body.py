"""Strict reading of JSON bodies."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.errors import MalformedRequest
from api.json_body import MAX_JSON_DEPTH, parse_json
from nova_workers.base.errors import InvalidInput
from tests.requirements import proves

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\x00")),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(st.characters(codec="ascii", min_codepoint=32)), inner),
    max_leaves=20,
)


@given(JSON_VALUES)
def test_json_without_nul_is_read_unchanged(value: object) -> None:
    assert parse_json(json.dumps(value).encode()) == value


@given(JSON_VALUES, st.text())
@proves("security.bodies")
def test_a_nul_anywhere_is_refused(value: object, around: str) -> None:
    nested = json.dumps({"a": [value, {"b": f"{around.encode('ascii', 'ignore').decode()}\x00"}]}).encode()
    with pytest.raises(InvalidInput) as refused:
        parse_json(nested)
    assert refused.value.fields["field"] == "a.1.b"


def test_a_backslash_before_the_letters_u0000_is_no_nul() -> None:
    assert parse_json(b'{"path": "C:\\\\u0000"}') == {"path": "C:\\u0000"}


@pytest.mark.parametrize(("levels", "accepted"), [(MAX_JSON_DEPTH, True), (MAX_JSON_DEPTH + 1, False), (5_000, False)])
@pytest.mark.parametrize("pair", [(b"[", b"]"), (b'{"a":', b"}")])
@proves("security.bodies")
def test_nesting_is_bounded(levels: int, accepted: bool, pair: tuple[bytes, bytes]) -> None:
    opening, closing = pair
    body = opening * levels + (b"1" if opening != b"[" else b"") + closing * levels
    if accepted:
        parse_json(body)
    else:
        with pytest.raises(MalformedRequest):
            parse_json(body)


def test_a_wide_body_is_not_a_deep_one() -> None:
    assert len(parse_json(json.dumps([{"a": [n]} for n in range(10_000)]).encode())) == 10_000


@pytest.mark.parametrize(
    "body",
    [
        b"[" * 2_000_000,
        b"[" + b"[]," * 660_000 + b"[]]",
        b"[" + (b"[" * 60 + b"]" * 60 + b",") * 16_000 + b"[]]",
        b"[" + b'{"a":{}},' * 220_000 + b"[]]",
        b'["' + b'[\\"' * 600_000,
        b'["' + b"[" * 60_000 + b"\\",
    ],
    ids=["deep", "wide", "deep and wide", "objects", "an open text", "an open escape"],
)
@proves("security.bodies")
def test_a_body_of_a_million_brackets_holds_the_process_for_a_moment_at_most(body: bytes) -> None:
    begun_s = time.thread_time()
    with pytest.raises(MalformedRequest):
        parse_json(body)
    assert time.thread_time() - begun_s < 0.2


def test_brackets_in_texts_are_no_containers() -> None:
    text = '[{"' * 200_000
    assert parse_json(json.dumps({"text": text}).encode()) == {"text": text}
