"""Redaction of text, and of streams for any split into pieces."""

import html
import json
from base64 import b64encode, urlsafe_b64encode
from typing import Any
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from nova_workers.base.observability.redactor import MIN_SECRET_CHARS, Redactor
from tests.requirements import proves

VALUE = 'p@ss/w"örd\\n+1 2'
PLAIN = "tok_123456"


def _split(text: str, cuts: list[int]) -> list[str]:
    places = sorted({cut % (len(text) + 1) for cut in cuts})
    return [text[start:end] for start, end in zip([0, *places], [*places, len(text)], strict=True)]


def _streamed(redactor: Redactor, pieces: list[str]) -> str:
    stream = redactor.stream()
    return "".join([*(stream.feed(piece) for piece in pieces), stream.end()])


def test_without_secrets_values_are_returned_unchanged() -> None:
    redactor = Redactor()
    given: dict[str, Any] = {"a": [PLAIN]}
    assert redactor.is_empty
    assert redactor.json(given) is given
    assert redactor.text(PLAIN) == _streamed(redactor, [PLAIN]) == PLAIN


@pytest.mark.parametrize(
    "written",
    [
        VALUE,
        json.dumps({"key": VALUE}),
        json.dumps({"key": VALUE}, ensure_ascii=False),
        json.dumps({"body": json.dumps({"key": VALUE})}),
        f"https://example.com/?q={quote(VALUE, safe='')}",
        f"https://example.com/?q={quote_plus(VALUE)}",
        html.escape(f"<p>{VALUE}</p>"),
        repr({"key": VALUE}),
        *(b64encode(f"{'u' * before}{VALUE}:rest".encode()).decode() for before in range(7)),
        urlsafe_b64encode(f"x{VALUE}".encode()).decode(),
    ],
)
def test_a_secret_is_found_in_every_encoding(written: str) -> None:
    redactor = Redactor({"KEY": VALUE})
    clean = redactor.text(written)
    assert "[secret:KEY]" in clean
    assert VALUE not in clean
    assert _streamed(redactor, list(written)) == clean


def test_overlapping_secrets_leave_no_rest() -> None:
    redactor = Redactor({"SHORT": "abcdef", "LONG": "abcdefghij", "NEXT": "efghijklmn"})
    assert redactor.text("-abcdef-") == "-[secret:SHORT]-"
    assert redactor.text("-abcdefghij-") == "-[secret:LONG]-"
    assert redactor.text("-abcdefghijklmn-") == "-[secret:LONG]-"
    assert redactor.text("abcdefabcdef") == "[secret:SHORT][secret:SHORT]"


def test_values_that_are_too_short_are_not_redacted() -> None:
    assert Redactor({"PIN": "1" * (MIN_SECRET_CHARS - 1)}).text("11111 and 11111") == "11111 and 11111"


def test_surrounding_white_space_is_no_part_of_a_secret() -> None:
    assert Redactor({"KEY": f"  {PLAIN}\n"}).text(f"<{PLAIN}>") == "<[secret:KEY]>"


def test_keys_and_values_of_json_are_redacted_and_blocks_stay_valid() -> None:
    redactor = Redactor({"KEY": PLAIN})
    assert redactor.json({PLAIN: [{"deep": (PLAIN, 1, None, True)}]}) == {
        "[secret:KEY]": [{"deep": ["[secret:KEY]", 1, None, True]}]
    }
    thought = {"type": "thinking", "thinking": f"It is {PLAIN}", "signature": "abc"}
    good = {"type": "thinking", "thinking": "Well", "signature": "abc"}
    assert redactor.json([good, thought, {"type": "text", "text": "Yes"}]) == [good, {"type": "text", "text": "Yes"}]
    data = b64encode(f"a file with {PLAIN}".encode()).decode()
    document = {"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": data}}
    assert redactor.json(document) == {"type": "text", "text": "[document left out, since it holds a secret: KEY]"}
    other = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGVsbG8="}}
    assert redactor.json(other) == other


def test_only_readable_secrets_are_restored() -> None:
    redactor = Redactor()
    redactor.learn("OPEN", "value-open", readable=True)
    redactor.learn("SHUT", "value-shut")
    given = {"a": ["Bearer [secret:OPEN]", "[secret:SHUT]", "[secret:NONE]", 1]}
    assert redactor.restore(given) == {"a": ["Bearer value-open", "[secret:SHUT]", "[secret:NONE]", 1]}


def test_a_stream_holds_back_only_a_possible_secret() -> None:
    stream = Redactor({"KEY": PLAIN}).stream()
    assert stream.feed("The key is to") == "The key is "
    assert stream.feed("k_1") == ""
    assert stream.feed("9, no") == "tok_19, no"
    assert stream.feed(" tok_123456") == " [secret:KEY]"
    assert stream.feed("tok_") == ""
    assert stream.end() == "tok_"


def test_dropped_text_of_a_stream_is_not_sent_later() -> None:
    stream = Redactor({"KEY": PLAIN}).stream()
    stream.feed("tok_")
    stream.drop()
    assert stream.feed("123456") == "123456"
    assert stream.end() == ""


@proves("secrets.stream")
@given(st.text(max_size=60), st.lists(st.integers(0, 1000), max_size=12), st.integers(0, 60))
def test_no_split_of_a_stream_passes_a_secret(text: str, cuts: list[int], at: int) -> None:
    redactor = Redactor({"KEY": VALUE, "OTHER": PLAIN})
    whole = f"{text[:at]}{VALUE}{text[at:]}{PLAIN}"
    shown = _streamed(redactor, _split(whole, cuts))
    assert VALUE not in shown
    assert PLAIN not in shown
    assert shown == redactor.text(whole)


_FEW = st.text(alphabet="ab", min_size=MIN_SECRET_CHARS, max_size=9)


@given(st.lists(_FEW, min_size=1, max_size=4), st.text(alphabet="abc", max_size=60), st.lists(st.integers(0, 99)))
@example(["aaaaaa", "aaaaaaaab"], "aaaaaaaaaaaaaaa", [3, 7])
def test_a_redacted_stream_equals_the_redacted_text(values: list[str], text: str, cuts: list[int]) -> None:
    redactor = Redactor({f"S{at}": value for at, value in enumerate(values)})
    shown = _streamed(redactor, _split(text, cuts))
    assert shown == redactor.text(text)
    assert not any(value in shown for value in values)


@given(st.text(min_size=MIN_SECRET_CHARS, max_size=40), st.text(max_size=20), st.lists(st.integers(0, 999), max_size=9))
def test_any_value_is_redacted_in_json_and_in_streams_of_it(value: str, around: str, cuts: list[int]) -> None:
    redactor = Redactor({"KEY": value})
    if len(value.strip()) < MIN_SECRET_CHARS or value in "[secret:KEY]":
        return
    document = json.dumps({"a": f"{around}|{value}|{around}"})
    shown = _streamed(redactor, _split(document, cuts))
    assert json.dumps(value)[1:-1] not in shown.replace("[secret:KEY]", "")
    assert shown == redactor.text(document)


@given(st.lists(_FEW, min_size=1, max_size=4), st.text(alphabet="abc", max_size=60), st.lists(st.integers(0, 99)))
def test_the_search_for_many_secrets_has_the_same_result(values: list[str], text: str, cuts: list[int]) -> None:
    given = {f"S{at}": value for at, value in enumerate(values)}
    few = Redactor(given)
    many = Redactor(given | {f"OTHER{at}": f"{at:06}-no-such-text" for at in range(60)})
    assert many.text(text) == few.text(text) == _streamed(many, _split(text, cuts))
