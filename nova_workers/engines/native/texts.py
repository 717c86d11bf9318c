"""Texts in files: how they are stored, and as a model reads and changes them.

A model gets and gives line feeds, and no byte order mark. What it does not change keeps its bytes: line ends, also
where a file mixes them, encoding, mark and the end of the last line.
"""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

_END = re.compile(r"\r\n|\r|\n")
_MARKS: Final = (
    (codecs.BOM_UTF8, "utf-8", "UTF-8"),
    # Before those of UTF-16, as the first of them begins with one.
    (codecs.BOM_UTF32_LE, None, ""),
    (codecs.BOM_UTF32_BE, None, ""),
    (codecs.BOM_UTF16_LE, "utf-16-le", "UTF-16"),
    (codecs.BOM_UTF16_BE, "utf-16-be", "UTF-16"),
)
_UTF_8_SEQUENCE = re.compile(rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}")
"""The bytes of a character that is not ASCII. A text in a one-byte encoding hardly contains one."""
_BINARY = re.compile(rb"[\x00-\x06\x0e-\x1a\x1c-\x1f]")
_NO_TEXT = (
    "it is no text in UTF-8, in UTF-16 with a byte order mark or in Windows-1252 (Latin-1); of binary files only "
    "images and PDFs"
)


@dataclass(frozen=True, slots=True)
class TextForm:
    """How a text is stored, apart from its line ends.

    Attributes:
        name: Of the encoding, for people.
        codec: Of the encoding, for Python.
        mark: The byte order mark at the beginning, or nothing.
    """

    name: str
    codec: str
    mark: bytes = b""

    def encoded(self, text: str) -> bytes:
        """Return a text as it is stored.

        Raises:
            ValueError: The encoding has no form for a character.
        """
        try:
            return self.mark + text.encode(self.codec)
        except UnicodeEncodeError as error:
            if self.codec == UTF_8.codec:
                raise
            character = text[error.start]
            raise ValueError(f"the file is in {self.name}, which has no {character!r}") from error


UTF_8: Final = TextForm("UTF-8", "utf-8")
_WINDOWS = TextForm("Windows-1252", "cp1252")


@dataclass(frozen=True, slots=True)
class StoredText:
    """The text of a file.

    Attributes:
        text: With line feeds.
        ends: How each of its line ends is stored, in order.
        form: How the rest is stored.
    """

    text: str
    ends: tuple[str, ...]
    form: TextForm

    @property
    def usual_end(self) -> str:
        """The line end that is used most; a line feed without any."""
        return Counter(self.ends).most_common(1)[0][0] if self.ends else "\n"

    def replaced(self, old: str, new: str, *, every: bool, most_chars: int) -> tuple[bytes, int]:
        """Return the file's bytes with a piece of the text replaced, and how often it was.

        Both pieces may have any line ends. A line end of the new piece is stored as the one at its place in the old
        piece, or else as most of the file. Where the old piece ends with a line end that the last line of the file does
        not have, it matches there, and the file ends as before.

        Args:
            old: What is replaced.
            new: What takes its place.
            every: Replace all occurrences; otherwise it must occur once.
            most_chars: Length of the longest text that may come of it.

        Raises:
            ValueError: It occurs nowhere, or more than once; the result is too long; or the encoding has no form for a
                character.
        """
        old, new = _END.sub("\n", old), _END.sub("\n", new)
        count = self.text.count(old)
        unended = not self.text.endswith("\n") and old.endswith("\n") and self.text.endswith(old[:-1])
        if count == 0 and unended and len(old) > 1:
            old, new, count = old[:-1], new.removesuffix("\n"), 1
            places = [len(self.text) - len(old)]
        else:
            places = [match.start() for match in re.finditer(re.escape(old), self.text)]
        if count == 0:
            raise ValueError("old_string was not found")
        if count > 1 and not every:
            raise ValueError(f"old_string occurs {count} times; it must be unique")
        if len(self.text) + count * len(new) > most_chars:
            raise ValueError(f"the result would be over {most_chars} characters")
        pieces: list[str] = []
        done = ends_done = 0
        for place in places:
            before = self.text[done:place]
            pieces.append(_with_ends(before, self.ends[ends_done:], self.usual_end))
            ends_done += before.count("\n")
            own = self.ends[ends_done : ends_done + old.count("\n")]
            pieces.append(_with_ends(new, own, self.usual_end))
            ends_done += len(own)
            done = place + len(old)
        pieces.append(_with_ends(self.text[done:], self.ends[ends_done:], self.usual_end))
        return self.form.encoded("".join(pieces)), count

    def rewritten(self, content: str) -> tuple[bytes, TextForm]:
        """Return the bytes of another whole text in the form of this file, and that form.

        Line feeds become the file's line ends if all of these are the same and the content has no others. The encoding
        is kept if it has all characters; else the content is stored in UTF-8.
        """
        if self.form.mark:
            content = content.removeprefix("\ufeff")
        if len(set(self.ends)) == 1 and "\r" not in content:
            content = content.replace("\n", self.ends[0])
        try:
            return self.form.encoded(content), self.form
        except ValueError:
            return content.encode(), UTF_8


def read_text(data: bytes) -> StoredText:
    """Return the text of a file.

    Raises:
        ValueError: It is no text, or in an encoding that cannot be told.
    """
    text, form = decoded(data)
    return StoredText(_END.sub("\n", text), tuple(_END.findall(text)), form)


def decoded(data: bytes, form: TextForm | None = None) -> tuple[str, TextForm]:
    """Return a text with its own line ends, and its form.

    Args:
        data: A whole file; or whole lines of one that begins with no mark.
        form: The form, if it is known: then `data` has no mark.

    Raises:
        ValueError: It is no text, or in an encoding that cannot be told.
    """
    if form is None:
        form = marked_form(data)
    if form is not None:
        try:
            return data.removeprefix(form.mark).decode(form.codec), form
        except UnicodeDecodeError as error:
            raise ValueError(_NO_TEXT) from error
    try:
        return data.decode(), UTF_8
    except UnicodeDecodeError:
        pass
    if _UTF_8_SEQUENCE.search(data) or _BINARY.search(data):
        # Mostly UTF-8 with broken bytes, or no text: what is added could not be right for both.
        raise ValueError(_NO_TEXT)
    try:
        return data.decode(_WINDOWS.codec), _WINDOWS
    except UnicodeDecodeError as error:
        raise ValueError(_NO_TEXT) from error


def shown_text(data: bytes, form: TextForm | None = None) -> tuple[str, TextForm]:
    """Return a text as a model reads it, and its form. Arguments and errors are those of `decoded`."""
    text, form = decoded(data, form)
    return _END.sub("\n", text), form


def marked_form(data: bytes) -> TextForm | None:
    """Return the form that a byte order mark at the beginning of a file names; None without one.

    Raises:
        ValueError: It names one that is not supported.
    """
    for mark, codec, name in _MARKS:
        if data.startswith(mark):
            if codec is None:
                raise ValueError(_NO_TEXT)
            return TextForm(name, codec, mark)
    return None


def _with_ends(text: str, ends: Sequence[str], usual: str) -> str:
    """Return a text with its line feeds replaced by line ends: those given, then the usual one."""
    lines = text.split("\n")
    own = [*ends[: len(lines) - 1], *[usual] * (len(lines) - 1 - len(ends))]
    return "".join(line + end for line, end in zip(lines, [*own, ""], strict=True))
