"""Takes out of an example what its dataset must not keep. Pure."""

from __future__ import annotations

import re
from typing import Any, Final

from nova_workers.base.observability.redaction import redact
from nova_workers.contracts.http.datasets import Redaction

_EMAIL: Final = re.compile(r"[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9-]{1,63}(?:\.[A-Za-z0-9-]{1,63}){1,8}")
_NUMBER: Final = re.compile(r"(?<![\w.])\+?\(?\d(?:[ ().-]{0,2}\d){6,30}(?!\w)")
_MEDIA: Final = frozenset({"image", "document"})


class ExampleRedactor:
    """The rules of a dataset. Without any it changes nothing."""

    def __init__(self, rules: Redaction) -> None:
        self._rules = rules
        # The longer first: a word may begin as another.
        words = sorted(map(re.escape, rules.words), key=len, reverse=True)
        self._words = re.compile("|".join(words), re.IGNORECASE) if words else None
        self._is_empty = not (rules.emails or rules.numbers or rules.secrets or words)

    def text(self, text: str) -> str:
        """Return a text with a placeholder for all that the rules name."""
        rules = self._rules
        if rules.secrets:
            text = redact(text)
        if rules.emails:
            text = _EMAIL.sub("[email]", text)
        if rules.numbers:
            text = _NUMBER.sub("[number]", text)
        return text if self._words is None else self._words.sub("[redacted]", text)

    def json(self, value: Any) -> Any:
        """Return a JSON value with each string redacted. The data of images and documents stays as it is."""
        if self._is_empty:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            if value.get("type") in _MEDIA:
                return value
            return {
                key: item if key in ("type", "id", "tool_use_id") else self.json(item) for key, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self.json(item) for item in value]
        return value
