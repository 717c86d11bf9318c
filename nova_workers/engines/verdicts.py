"""What the errors of providers mean, for every engine: verdicts, and the tables that lead to them.

A provider's table is data in the room of its engine. `VerdictTable.of` is the only reader of its verdicts.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import httpx2

from nova_workers.base.errors import EngineErrorKind, EngineFailure
from nova_workers.engines.resilience import AttemptFailed, Cause


class Verdict(NamedTuple):
    """The kind of a failure, whether the same request may succeed later, and what caused it."""

    kind: EngineErrorKind
    retryable: bool
    cause: Cause

    def failure(self, message: str, retry_after_s: float | None = None) -> AttemptFailed:
        """Return the failure of an attempt with this verdict."""
        return AttemptFailed(
            message, kind=self.kind, retryable=self.retryable, cause=self.cause, retry_after_s=retry_after_s
        )


NO_KEY = Verdict("auth_failure", retryable=False, cause="no_key")
"""This worker has no key."""
REFUSED = Verdict("auth_failure", retryable=False, cause="key")
"""The key is invalid."""
UNPAID = Verdict("auth_failure", retryable=False, cause="quota")
"""The key is valid, and its account may not spend more."""
FORBIDDEN = Verdict("auth_failure", retryable=False, cause="key_for_model")
"""The key is valid, but not for this model."""
RATE_LIMITED = Verdict("rate_limit", retryable=True, cause="rate_limit")
"""Too many requests or tokens now."""
OVERFLOW = Verdict("context_overflow", retryable=False, cause="request")
"""The conversation exceeds the model's window."""
OUT_OF_ORDER = Verdict("model_error", retryable=True, cause="transport")
"""The provider fails now."""
NO_MODEL = Verdict("model_error", retryable=False, cause="model")
"""There is no such model."""
INVALID = Verdict("model_error", retryable=False, cause="request")
"""The request is malformed."""
UNKNOWN = Verdict("unknown", retryable=False, cause="request")
"""The error is none of the provider's."""

BY_STATUS: Final[Mapping[int, Verdict]] = {
    401: REFUSED,
    402: UNPAID,
    403: FORBIDDEN,
    404: NO_MODEL,
    408: OUT_OF_ORDER,
    409: OUT_OF_ORDER,
    413: OVERFLOW,
    429: RATE_LIMITED,
}
"""HTTP statuses that say more than whose fault it is."""
TOO_LARGE = 413
"""The request has too many bytes for the server or a proxy before it."""
REFUSING = frozenset({400, TOO_LARGE, 422})
"""Statuses with which providers refuse the content of a request. Any other 4xx is about keys, models or limits."""

NOT_TAKEN: Final = re.compile(
    r"unsupported|(?:not|n't) (?:\w+ )?(?:support|accept|allow|permit)|deprecated|unrecognized"
    r"|unknown (?:param|field|arg)|not available|extra inputs",
    re.IGNORECASE,
)
"""How providers say that a model does not take an option."""

_ABOUT_MEDIA: Final = re.compile(r"\b(images?|pdfs?|documents?|media|base64)\b", re.IGNORECASE)
"""How Anthropic's messages name images and documents."""

_NOT_WRITABLE = "not JSON compliant"
"""The encoder's message for a request with NaN or infinity."""


def of_status(status: int) -> Verdict:
    """Return the verdict on an HTTP status. One that says nothing more means that the provider is misconfigured."""
    return BY_STATUS.get(status) or (INVALID if status in REFUSING else OUT_OF_ORDER)


def pattern(text: str) -> re.Pattern[str]:
    """Return a pattern of words in messages, in any case."""
    return re.compile(text, re.IGNORECASE)


PROGRAM_MEDIA: Final = pattern(r"\b(images?|media|base64|multimodal|vision)\b")
"""Words of vendors' programs about images and documents."""


Words = tuple[tuple[re.Pattern[str], Verdict], ...]
"""Verdicts by words of a text. The first match counts."""


@dataclass(frozen=True, slots=True)
class VerdictTable:
    """What the errors of one provider mean. The first field counts that knows an error.

    Attributes:
        first: By words of messages that say more than a code or a status.
        codes: By codes and types of errors.
        status: Where a message contains the HTTP status, which then counts; None: it is known apart from the message.
        code_words: By words of the last code, of errors without a status.
        words: By words of a message and its codes, likewise.
        narrowed: Verdicts that these words of a message change, and into which.
        media: How messages name images and documents.
    """

    first: Words = ()
    codes: Mapping[str, Verdict] = field(default_factory=dict[str, Verdict])
    status: re.Pattern[str] | None = None
    code_words: Words = ()
    words: Words = ()
    narrowed: tuple[tuple[Verdict, re.Pattern[str], Verdict], ...] = ()
    media: re.Pattern[str] = _ABOUT_MEDIA

    def of(self, message: str, *, codes: Sequence[str] = (), status: int | None = None) -> Verdict | None:
        """Return the verdict on an error; None if it is unknown.

        Args:
            message: The provider's.
            codes: Its codes, the most specific first.
            status: Of HTTP.
        """
        found = _of_words(self.first, message) or next((self.codes[code] for code in codes if code in self.codes), None)
        if found is None and status is None and self.status is not None and (match := self.status.search(message)):
            status = int(match[1])
        if found is None and status is not None:
            found = of_status(status)
        if found is None and codes:
            found = _of_words(self.code_words, codes[-1])
        found = found or _of_words(self.words, " ".join((*codes, message)))
        return next((to for verdict, words, to in self.narrowed if found == verdict and words.search(message)), found)


def _of_words(table: Iterable[tuple[re.Pattern[str], Verdict]], text: str) -> Verdict | None:
    return next((verdict for words, verdict in table if words.search(text)), None)


def found_in_reading(failure: EngineFailure) -> EngineFailure:
    """Return the failure for a truncated stream or an invalid response, which we detected ourselves."""
    if isinstance(failure, AttemptFailed) or failure.kind != "model_error" or not failure.retryable:
        return failure
    return OUT_OF_ORDER.failure(failure.message)


def of_exception(error: Exception) -> Verdict:
    """Return the verdict on an exception that was raised below an SDK, or in reading what it returned."""
    match error:
        case httpx2.TransportError():
            # A connection that breaks within a stream raises the transport's own error.
            return OUT_OF_ORDER
        case ValueError() | LookupError() | RuntimeError() | OverflowError() | AttributeError() | TypeError():
            # The stream violates the protocol: broken JSON, events out of order, or values of another type.
            return INVALID if _is_data_defect(error) else OUT_OF_ORDER
        case _:
            return UNKNOWN


def _is_data_defect(error: Exception) -> bool:
    """Return whether a request cannot be encoded, or a response nests too deep to be parsed: retries cannot help."""
    if isinstance(error, UnicodeEncodeError | RecursionError | OverflowError):
        return True
    return isinstance(error, ValueError) and _NOT_WRITABLE in str(error)
