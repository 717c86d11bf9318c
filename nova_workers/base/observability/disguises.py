"""Other readings of a text, such as reversed or decoded: what is hidden in it is plain in one of them.

Every reading takes linear time, and all readings of a text together have a bounded length.
"""

import binascii
import html
import re
import unicodedata
from base64 import b32decode, b64decode
from collections import deque
from collections.abc import Iterator
from typing import Final
from urllib.parse import unquote_to_bytes

_INVISIBLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164\ufe00-\ufe0f"
    "\ufeff\uffa0\ufff9-\ufffb\U000e0000-\U000e01ef]+"
)
_TAGS: Final = re.compile("[\U000e0020-\U000e007e]{4,}")
"""Invisible copies of ASCII."""
_ASCII_OF_TAGS: Final = {0xE0000 + code: code for code in range(0x20, 0x7F)}
_LOOKALIKES: Final = str.maketrans(
    "\u0410\u0412\u0415\u0405\u0406\u0408\u041a\u041c\u041d\u041e\u0420\u0421\u0422\u0425\u0423\u0430\u0432"
    "\u0435\u0455\u0456\u0458\u043a\u043c\u043d\u043e\u0440\u0441\u0442\u0445\u0443\u0501\u051b\u051d\u04bb"
    "\u04cf\u0391\u0392\u0395\u0396\u0397\u0399\u039a\u039c\u039d\u039f\u03a1\u03a4\u03a5\u03a7\u03b1\u03bd"
    "\u03bf\u03c1\u03c4\u03c5\u03c7\u03b9\u0131\u0261\u2010\u2011\u2012\u2013\u2014\u2212\ufe58\u2043",
    "ABESIJKMHOPCTXYabesijkmhopctxydqwhlABEZHIKMNOPTYXavoptuxiig--------",
)
"""Cyrillic and Greek letters, and dashes, that look like characters of ASCII."""
_ROT13: Final = str.maketrans(
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz", "NOPQRSTUVWXYZABCDEFGHIJKLMnopqrstuvwxyzabcdefghijklm"
)
_SPACED: Final = re.compile(r"(?<!\S)\S(?:[ \t._|·•/*,\n-]\S){9,}")
"""Letters with one separator between each two."""
_BASE64: Final = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{8,}={0,2}")
_WORDLIKE: Final = re.compile(r"[A-Z]?[a-z]*(?:[-/_][A-Z]?[a-z]*)*|[A-Z_/-]+")
"""Words, as in a path: no encoding."""
_BASE64_LINES: Final = re.compile(
    r"(?<![A-Za-z0-9+/_-])(?:[A-Za-z0-9+/_-]{20,100}(?:\r?\n|\\n)[ \t]{0,8}){1,10000}[A-Za-z0-9+/_-]{2,}={0,2}"
)
_LINE_END: Final = re.compile(r"\s|\\n")
_BASE64_ONLY: Final = re.compile(r"[A-Za-z0-9+/_\s-]{16,}=?\s*=?\s*")
_BASE32: Final = re.compile(r"(?<![A-Z2-7])[A-Z2-7]{24,}={0,6}")
_HEX: Final = re.compile(r"(?:(?:0x|\\x)?[0-9a-fA-F]{2}[ :,-]?){12,}")
_HEX_FILLING: Final = re.compile(r"0x|\\x|[ :,-]")
_CODES: Final = re.compile(r"(?<!\d)\d{2,3}(?:[\s,;]{1,2}\d{2,3}){11,}(?!\d)")
_BITS: Final = re.compile(r"(?:[01]{8}[ ,]?){8,}")
_NUMBER: Final = re.compile(r"\d+")
_ESCAPES: Final = re.compile(r"\\(?:u\{?([0-9a-fA-F]{4,6})\}?|U([0-9a-fA-F]{8})|x([0-9a-fA-F]{2})|([nrt\"'/\\]))")
_PRINTABLE: Final = re.compile(rb"[\x20-\x7e\n\r\t]{12,}")
_SIMPLE_ESCAPES: Final = {"n": "\n", "r": "\n", "t": "\t"}
_NOT_ALNUM: Final = re.compile(r"[^a-z0-9]+")
_ALIGNMENTS: Final = 4
_SHORT: Final = 24
_LEAST_CHARS: Final = 6
_WHOLE, _DECODED, _TWICE, _TURNED, _LAST = range(5)
"""How a reading was made: it decides which readings it has itself."""
_MOST_GROWTH: Final = 12
"""All readings together have at most this many times the characters of the text."""


def plain(text: str) -> str:
    """Return a text without invisible characters, with compatible and similar characters as ASCII has them."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFKC", without_invisible(text)).translate(_LOOKALIKES)


def without_invisible(text: str) -> str:
    """Return a text without its invisible characters."""
    return _INVISIBLE.sub("", text)


def squashed(text: str) -> str:
    """Return the letters and digits of a text, in lower case and without accents."""
    if not text.isascii():
        spelt = unicodedata.normalize("NFKD", plain(text)).casefold()
        return "".join(filter(str.isalnum, spelt))
    return _NOT_ALNUM.sub("", text.lower())


def readings(text: str) -> Iterator[str]:
    """Return a text and its other readings: the text first, and each once."""
    seen: set[str] = set()
    left = _MOST_GROWTH * len(text) + 2_000
    waiting = deque([(text, _WHOLE)])
    while waiting:
        now, kind = waiting.popleft()
        if now in seen or len(now) < _LEAST_CHARS:
            continue
        left -= len(now)
        if left < 0:
            return
        seen.add(now)
        yield now
        waiting += _others(now, kind)


def _others(text: str, kind: int) -> Iterator[tuple[str, int]]:
    """Return readings of a text. What is reversed or shifted is decoded, and what is decoded is read once more."""
    if kind == _LAST:
        return
    base = _unescaped(plain(text))
    if tags := _TAGS.findall(text):
        yield "\n".join(tag.translate(_ASCII_OF_TAGS) for tag in tags), _LAST
    if base != text:
        yield base, _LAST
    if joined := "\n".join(found[::2] for found in _SPACED.findall(base)):
        yield joined, _LAST
    after = {_WHOLE: _DECODED, _DECODED: _TWICE}.get(kind, _LAST)
    if plainly := "\n".join(decoded(base)):
        yield plainly, after
    if kind in {_WHOLE, _DECODED}:
        yield base[::-1], _TURNED
        yield base.translate(_ROT13), _TURNED


def _unescaped(text: str) -> str:
    if "%" in text:
        text = unquote_to_bytes(text).decode("utf-8", "replace")
    if "&" in text:
        text = html.unescape(text)
    return _ESCAPES.sub(_character, text) if "\\" in text else text


def decoded(text: str) -> Iterator[str]:
    """Return the texts that are encoded in a text: in Base64, Base32, hexadecimal or as numbers of characters."""
    for match in _BASE64.finditer(text):
        yield from _from_base64(match[0])
    for match in _BASE64_LINES.finditer(text):
        yield from _from_base64(_LINE_END.sub("", match[0]))
    if _BASE64_ONLY.fullmatch(text):
        yield from _from_base64("".join(text.split()))
    for match in _HEX.finditer(text):
        digits = _HEX_FILLING.sub("", match[0])
        yield from _text_of(bytes.fromhex(digits[: len(digits) // 2 * 2]))
    for match in _BASE32.finditer(text):
        token = match[0].rstrip("=")
        try:
            yield from _text_of(b32decode(token + "=" * (-len(token) % 8)))
        except binascii.Error:
            continue
    for match in _CODES.finditer(text):
        codes = [int(number) for number in _NUMBER.findall(match[0])]
        yield from _text_of(bytes(code for code in codes if code < 256))
    for match in _BITS.finditer(text):
        bits = match[0].replace(" ", "").replace(",", "")
        yield from _text_of(int(bits, 2).to_bytes(len(bits) // 8, "big"))


def _from_base64(run: str) -> list[str]:
    token = run.rstrip("=").replace("-", "+").replace("_", "/")
    found: list[str] = []
    if _WORDLIKE.fullmatch(run):
        return found
    # A long run may begin with characters that are no part of it, such as a path.
    for skipped in range(_ALIGNMENTS if len(token) >= _SHORT else 1):
        part = token[skipped:]
        part = part[:-1] if len(part) % 4 == 1 else part
        found += _text_of(b64decode(part + "=" * (-len(part) % 4)))
    return found


def _text_of(data: bytes) -> list[str]:
    """Return the text in bytes: all of it, or the printable parts."""
    if data.count(0) > len(data) // 4:
        data = data.replace(b"\0", b"")
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return [part.decode() for part in _PRINTABLE.findall(data)]
    return [text] if len(text) >= 6 and sum(map(str.isprintable, text)) >= 0.8 * len(text) else []


def _character(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code is None:
        return _SIMPLE_ESCAPES.get(match[4], match[4])
    number = int(code, 16)
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else ""
