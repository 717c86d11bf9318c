"""What callers read of a failing database, and what counts as a refusal."""

from __future__ import annotations

import asyncpg
import pytest

from nova_workers.base.errors import OutcomeUnknown, Unavailable
from nova_workers.ledger.failures import is_refusal, unavailable
from tests.requirements import proves

_SECRET = "connection to db-7.internal:5432 as role nova_fleet: SELECT secret FROM runs"
_ANSWERED = {
    "53300": "no free connection",
    "25006": "read-only",
    "55P03": "did not get a lock in time",
    "28P01": "refuses the user or password",
    "57014": "canceled the statement",
    "57P01": "ended the connection",
    "57P03": "starting or stopping",
    "53100": "disk space",
    "40P01": "rolled the transaction back",
}


def _answered(sqlstate: str, severity: str = "ERROR") -> BaseException:
    return asyncpg.PostgresError.new({"S": severity, "V": severity, "C": sqlstate, "M": _SECRET})


@pytest.mark.parametrize("sqlstate", _ANSWERED)
@proves("unavailable.says-what")
def test_an_answer_of_the_database_is_given_in_plain_words_without_its_own(sqlstate: str) -> None:
    error = unavailable(_answered(sqlstate), may_be_written=False)
    assert _ANSWERED[sqlstate] in error.message
    assert "did not answer" not in error.message
    assert not any(word in error.message for word in (_SECRET, "5432", "Error"))
    # For operators and logs.
    assert _SECRET in str(error)


@pytest.mark.parametrize(
    ("failure", "words"),
    [
        (TimeoutError(), "did not answer in time"),
        (ConnectionRefusedError(111, _SECRET), "accepts no connection"),
        (OSError(-2, _SECRET), "cannot be reached"),
        (asyncpg.ConnectionDoesNotExistError(_SECRET), "connection to the database was lost"),
    ],
)
@proves("unavailable.says-what")
def test_a_database_that_does_not_answer_is_called_so(failure: BaseException, words: str) -> None:
    error = unavailable(failure, may_be_written=True)
    assert isinstance(error, OutcomeUnknown)
    assert words in error.message
    assert _SECRET not in error.message


@proves("unavailable.says-what")
def test_an_error_that_ends_the_session_does_not_prove_that_nothing_was_committed() -> None:
    assert is_refusal(_answered("53100"))
    assert not is_refusal(_answered("57P01", "FATAL"))
    assert not is_refusal(asyncpg.ConnectionDoesNotExistError("lost"))
    # The session waited for the next message of its transaction, so the commit did not arrive.
    assert is_refusal(_answered("25P03", "FATAL"))


def test_what_nothing_was_written_of_is_not_an_unknown_outcome() -> None:
    error = unavailable(_answered("53300"), may_be_written=False)
    assert type(error) is Unavailable
    assert error.fields == {"server": "postgres", "may_be_written": False}
