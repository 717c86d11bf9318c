"""Keeps secrets, and the content of work orders, out of log lines.

Of an address only the scheme and the host are logged: the rest of it may be a token (`addresses`).

Two kinds count: what has the form of a key or a password, and the values that the present run's `Redactor` knows. The
redactor travels with the context, so that every task and thread of a run finds it.

While a work order is executed (`sealing`), a text may be its content: then every text of a log line is replaced by a
fingerprint, except names and ids.
"""

import re
import traceback
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from functools import lru_cache
from typing import Any, Final

from structlog.typing import EventDict, WrappedLogger

from nova_workers.base.observability.addresses import bare_addresses
from nova_workers.base.observability.disguises import decoded, without_invisible
from nova_workers.base.observability.redactor import Redactor
from nova_workers.base.observability.secret_forms import find_secrets

REDACTED: Final = "[redacted]"

_MAX_DEPTH: Final = 6
"""Deeper values are shown as their redacted text, so a cyclic structure cannot hang a log line."""

_SECRET_FIELDS: Final = frozenset(
    {
        "authorization",
        "proxy_authorization",
        "cookie",
        "set_cookie",
        "password",
        "passwd",
        "secret",
        "api_key",
        "x_api_key",
    }
)
_SECRET_FIELD_ENDINGS: Final = ("_password", "_secret", "_api_key")

# What may be a secret: a log line loses nothing by it. The group stays.
_SUSPECTS: Final = re.compile(
    r"(\b(?i:Bearer|Basic)\s+)[^\s,;\"']+"
    r"|(\b[a-z][a-z0-9+.-]*://[^\s:/@]*:)[^\s/@][^\s/]*(?=@)"
    r"|(\b(?i:password|passwd|api[_-]?key|x-api-key)[\"']?\s*[=:]\s*[\"']?)[^\s,;&\"']+"
)
_NAME_OR_ID: Final = re.compile(r"[a-z_.]*|[a-z]{2,6}_[0-9A-HJKMNP-TV-Z]{26}|[0-9a-f]{16}|[0-9a-f]{32}")
_ENCODED: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,}={0,2}")
_MARKS: Final = ("nova_", ":", "=", " ")

_NAMES: Final = frozenset(
    {"timestamp", "level", "logger", "process", "run_id", "thread_id", "tenant_id", "trace_id", "span_id", "error_type"}
)
"""Fields of a log line that never contain content or secrets."""
_EVENT_NAME: Final = re.compile(r"[a-z0-9_.]{1,100}")
"""What our own code logs; other libraries log sentences."""

_current: ContextVar[Redactor | None] = ContextVar("nova_redactor", default=None)
_fingerprint: ContextVar[Callable[[str], str] | None] = ContextVar("nova_fingerprint", default=None)


@contextmanager
def hiding(redactor: Redactor) -> Generator[Redactor]:
    """Let everything within the block, and every task that begins in it, find this redactor."""
    token = _current.set(redactor)
    try:
        yield redactor
    finally:
        _current.reset(token)


@contextmanager
def sealing(fingerprint: Callable[[str], str]) -> Generator[None]:
    """Let log lines within the block, and in every task that begins in it, have fingerprints in place of texts."""
    token = _fingerprint.set(fingerprint)
    try:
        yield
    finally:
        _fingerprint.reset(token)


def frames_of(error: BaseException) -> list[str]:
    """Return where an exception was raised, outermost frame first, without its message: that may quote content."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f"{frame.filename}:{frame.lineno} in {frame.name}" for frame in frames]


def current_redactor() -> Redactor | None:
    """Return the redactor of the present run, or None outside any."""
    return _current.get()


def hide(text: str) -> str:
    """Return the text without the secrets of the present run."""
    redactor = _current.get()
    return text if redactor is None else redactor.text(text)


def redact(text: str) -> str:
    """Return the text with every secret in it replaced.

    Those are the secrets of the present run, and known forms (`secret_forms`): keys of vendors, private keys,
    ``Authorization`` values, passwords in URLs, and ``password=…`` or ``api_key=…`` pairs; also in Base64 or
    hexadecimal, reversed, or with invisible characters within. The first characters of a key stay, so that an operator
    can tell which key it was.
    """
    shown = hide(text)
    if not shown.isascii():
        visible = without_invisible(shown)
        # Invisible characters are kept only where they hide nothing.
        shown = visible if any(True for _ in find_secrets(visible)) else shown
    spans: list[tuple[int, int]] = []
    # Most fields are names and ids, and a search of all forms takes some microseconds.
    if not _NAME_OR_ID.fullmatch(shown):
        spans += ((found.start, found.end) for found in find_secrets(shown))
        size = len(shown)
        spans += ((size - found.end, size - found.start) for found in find_secrets(shown[::-1]))
        spans += (match.span() for match in _ENCODED.finditer(shown) if _hides_a_secret(match[0]))
    if any(mark in shown for mark in _MARKS) or not shown.isprintable():
        spans += ((match.end(match.lastindex or 0), match.end()) for match in _SUSPECTS.finditer(shown))
    return _without(shown, spans) if spans else shown


def _hides_a_secret(encoded: str) -> bool:
    return any(True for text in decoded(encoded) for _ in find_secrets(text))


def _without(text: str, spans: Sequence[tuple[int, int]]) -> str:
    shown: list[str] = []
    at = 0
    for start, end in sorted(spans):
        if start >= at:
            shown += (text[at:start], REDACTED)
        at = max(at, end)
    return "".join((*shown, text[at:]))


def redact_value(value: Any) -> Any:
    """Return a JSON value with every string as a log line has it, and without the values of secret fields."""
    return _clean(value, 0)


def redact_secrets(logger: WrappedLogger, name: str, event_dict: EventDict) -> EventDict:
    """Redact every value of a log line (a structlog processor; goes after tracebacks are formatted)."""
    fingerprint = _fingerprint.get()
    if fingerprint is not None:
        return {key: _sealed(key, value, fingerprint) for key, value in event_dict.items()}
    return {key: value if key in _NAMES else _redacted(key, value, 0) for key, value in event_dict.items()}


def _sealed(key: str, value: Any, fingerprint: Callable[[str], str]) -> Any:
    if value is None or isinstance(value, bool | int | float) or key in _NAMES:
        return value
    text = value if isinstance(value, str) else repr(value)
    return text if key == "event" and _EVENT_NAME.fullmatch(text) else fingerprint(text)


@lru_cache(maxsize=1_024)
def _is_secret_field(name: str) -> bool:
    plain = name.lower().replace("-", "_")
    return plain in _SECRET_FIELDS or plain.endswith(_SECRET_FIELD_ENDINGS)


def _redacted(key: str, value: Any, depth: int) -> Any:
    return REDACTED if _is_secret_field(key) else _clean(value, depth)


def _clean(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return bare_addresses(redact(value))
    if value is None or isinstance(value, bool | int | float):
        return value
    if depth < _MAX_DEPTH:
        if isinstance(value, Mapping):
            return {str(key): _redacted(str(key), item, depth + 1) for key, item in value.items()}
        if isinstance(value, list | tuple | set | frozenset):
            return [_clean(item, depth + 1) for item in value]
    return bare_addresses(redact(str(value)))
