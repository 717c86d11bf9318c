"""What a typed line says as the answer to a question with options."""

import pytest

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.talk.answers import choices, read_answer

OPTIONS = ("Tea", "Coffee")


@pytest.mark.parametrize(
    ("typed", "answer"),
    [("Tea", "Tea"), ("coffee", "Coffee"), ("2", "Coffee"), (" 3 ", "3"), ("neither, water", "neither, water")],
)
def test_options_may_be_named_and_any_other_line_is_an_answer_too(typed: str, answer: str):
    assert read_answer(typed, options=OPTIONS, approval=False).text == answer


def test_a_question_that_takes_only_its_options_refuses_other_lines():
    assert read_answer("2", options=OPTIONS, only_options=True, approval=False).text == "Coffee"
    with pytest.raises(InvalidInput, match="'3' is none of Tea, Coffee, and was not sent"):
        read_answer("3", options=OPTIONS, only_options=True, approval=False)


@pytest.mark.parametrize(
    ("options", "only_options", "shown"),
    [(OPTIONS, False, "Tea | Coffee | …"), (OPTIONS, True, "Tea | Coffee"), ((), False, "")],
)
def test_what_may_be_answered_is_shown(options: tuple[str, ...], only_options: bool, shown: str):
    assert choices(options, only_options=only_options, approval=False, lasting=False) == shown
