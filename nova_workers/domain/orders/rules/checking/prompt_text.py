"""Recognizes parts of known texts, such as prompts, whatever happened to their case, blanks and punctuation. Pure.

Both texts are reduced to letters and digits. A part is known if so many characters follow each other as they do in a
known text. Characters count by their bytes, so that scripts in which a character is a word need fewer of them.
"""

from collections.abc import Iterable
from typing import Final

from nova_workers.base.observability.disguises import squashed

_STEP: Final = 8


class KnownTexts:
    """Texts of which no part of a length may occur."""

    def __init__(self, texts: Iterable[str], *, least_bytes: int) -> None:
        """Store the texts.

        Args:
            texts: What is known. Shorter ones than `least_bytes` are left out.
            least_bytes: How long a part is at least; at least 12.
        """
        self._window = least_bytes - _STEP + 1 if least_bytes >= 2 * _STEP else least_bytes
        self._step = _STEP if least_bytes >= 2 * _STEP else 1
        self._grams: set[bytes] = set()
        for text in texts:
            known = squashed(text).encode("utf-8", "surrogatepass")
            if len(known) >= least_bytes:
                self._grams.update(known[at : at + self._window] for at in range(len(known) - self._window + 1))

    def occurs_in(self, reduced: bytes, *, beside: bytes = b"") -> bool:
        """Return whether a part of them is in a reduced text: its letters and digits, as `squashed` returns them.

        Args:
            reduced: The text.
            beside: Another reduced text; what is in it, too, does not count.
        """
        window, grams = self._window, self._grams
        if not grams:
            return False
        found = [reduced[at : at + window] for at in range(0, len(reduced) - window + 1, self._step)]
        return not grams.isdisjoint(found) and any(gram in grams and gram not in beside for gram in found)
