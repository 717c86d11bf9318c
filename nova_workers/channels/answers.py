"""Turns updates into answers to what a run asks."""

from collections.abc import Mapping
from typing import Any, NamedTuple, Self

from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.validation import place_of, problem_of
from nova_workers.channels.port import Update
from nova_workers.contracts.waits import AFFIRMATIVE, AskUser, RunAnswer, WaitView

_NO = frozenset({"no", "n", "deny", "denied"})


class NoAnswer(InvalidInput):
    """An update is no answer to the question that it goes to; the message is for its sender."""


class Question(NamedTuple):
    """What an update answers; `option` is the chosen one, if the update names it by its number."""

    run_id: str
    wait_id: str
    kind: str
    option: str = ""

    @classmethod
    def of(cls, wait: WaitView, update: Update) -> Self:
        """Return the question of a wait, with the choice of an update.

        Raises:
            NoAnswer: There is no such option.
        """
        option = ""
        if update.choice is not None:
            options = wait.request.options if isinstance(wait.request, AskUser) else ("yes", "no")
            if update.choice >= len(options):
                raise NoAnswer(f"The question has {len(options)} options, and no number {update.choice}.")
            option = options[update.choice]
        return cls(wait.run_id, wait.id, wait.request.kind, option)


def answer_to(question: Question, update: Update, *, by: str) -> RunAnswer:
    """Return the answer that an update gives.

    Raises:
        NoAnswer: It is no answer to the question; the message says what is.
    """
    if update.attachments:
        raise NoAnswer("A question is answered with text. Send the answer without the file, and the file later.")
    text = question.option or update.text.strip()
    if not text:
        raise NoAnswer("A question is answered with text, and the update has none.")
    if question.kind != "approval":
        return _answer({"text": text, "wait_id": question.wait_id, "by": by})
    word = text.casefold().rstrip(".!")
    if word not in AFFIRMATIVE | _NO:
        raise NoAnswer(f"A call that needs permission is answered with yes or no, not {text[:50]!r}.")
    return RunAnswer(approve=word in AFFIRMATIVE, wait_id=question.wait_id, by=by)


def _answer(values: Mapping[str, Any]) -> RunAnswer:
    try:
        return RunAnswer.model_validate(values)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise NoAnswer(f"{place_of(first) or 'update'}: {problem_of(first, RunAnswer)}") from error
