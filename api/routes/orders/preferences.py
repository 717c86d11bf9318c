"""The `Prefer` header of HTTP (RFC 7240), as far as work orders honour it: `respond-async` and `wait`."""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

_NAME: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_QUOTED: Final = r'"(?:[^"\\]|\\.)*+"'
_PREFERENCE: Final = re.compile(
    rf"[ \t]*(?P<name>{_NAME})(?:[ \t]*=[ \t]*(?P<value>{_NAME}|{_QUOTED}))?"
    rf'(?:[ \t]*;(?:[^",]|{_QUOTED})*+)?[ \t]*(?:,|$)'
)
_NEXT: Final = re.compile(rf'(?:[^",]|{_QUOTED}|")*?(?:,|$)')
_ESCAPED: Final = re.compile(r"\\(.)")
_MOST_DIGITS: Final = 9


class Preferences(NamedTuple):
    """What a client prefers.

    Attributes:
        respond_async: Whether to respond before the end.
        wait_s: How long to wait for the end at most; None if that is not given.
    """

    respond_async: bool = False
    wait_s: int | None = None

    @property
    def applied(self) -> str:
        """The value of `Preference-Applied` if both are honoured; empty if there are none."""
        named = ["respond-async"] if self.respond_async else []
        return ", ".join([*named, *([] if self.wait_s is None else [f"wait={self.wait_s}"])])


def read_preferences(headers: Sequence[str]) -> Preferences:
    """Return the preferences in the values of all `Prefer` headers of a request.

    Of a preference that is there twice the first counts. What is malformed or unknown is ignored, as RFC 7240 requires.
    """
    found: dict[str, str] = {}
    for header in headers:
        for name, value in _preferences(header):
            found.setdefault(name.lower(), value)
    wait = found.get("wait", "")
    wait_s = int(wait) if wait.isascii() and wait.isdigit() and len(wait) <= _MOST_DIGITS else None
    return Preferences("respond-async" in found, wait_s)


def _preferences(header: str) -> Iterator[tuple[str, str]]:
    at = 0
    while at < len(header):
        match = _PREFERENCE.match(header, at)
        if match is not None:
            value = match["value"] or ""
            yield match["name"], _ESCAPED.sub(r"\1", value[1:-1]) if value.startswith('"') else value
        else:
            match = _NEXT.match(header, at)
        at = max(at + 1, len(header) if match is None else match.end())
