"""I8: a steering message is answered once."""

from __future__ import annotations

from collections.abc import Iterator

from tests.chaos.checker.ledger import Ledger
from tests.chaos.checker.verdict import Violation
from tests.chaos.history import History


def check(history: History, ledger: Ledger) -> Iterator[Violation]:
    """Count the committed responses that name each steering message: the model names each message that it gets once."""
    runs = {run.key: run for run in ledger.runs if run.key is not None}
    by_id = {run.id: run for run in ledger.runs}
    responses = [message for message in ledger.messages if message.kind == "response"]
    for submission in history.first_submissions().values():
        run = runs.get(submission.key)
        if submission.kind != "steer" or run is None or not run.has_ended:
            continue
        answers = [message for message in responses if f"ack:{submission.name};" in message.text]
        answered_by = by_id.get(run.merged_into or run.id)
        least = 1 if answered_by is not None and answered_by.status == "succeeded" else 0
        if not least <= len(answers) <= 1:
            what = f"the steering message {submission.name} was answered {len(answers)} times"
            yield Violation("I8", what, (str(run), str(answered_by), *(str(each)[:300] for each in answers)))
