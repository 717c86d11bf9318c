"""Takes known secrets out of what is kept and shown: text, JSON values, and text that arrives in pieces.

A value is found in the forms that it takes on its way: as it is, escaped in JSON, in a URL, in markup, and inside a
Base64 text (a header of Basic authentication, a file). What overlaps is taken out as one, so that the rest of a longer
value never stays behind. This guards against values that are repeated; it cannot stop a model that spells one
backwards.
"""

import html
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import quote, quote_plus

MIN_SECRET_CHARS: Final = 6
"""A shorter text occurs too often where it is no secret."""

_MANY_FORMS: Final = 200
"""The number of forms from which on one check at each position of a text is faster than one search for each form
(measured: 54 µs per form and 100,000 characters)."""

_PERCENT: Final = re.compile(r"%[0-9A-F]{2}")
_PLACEHOLDER: Final = re.compile(r"\[secret:([A-Za-z][A-Za-z0-9_]*)\]")


def placeholder(name: str) -> str:
    """Return the placeholder for a secret's value."""
    return f"[secret:{name}]"


class _Span(NamedTuple):
    start: int
    end: int
    name: str


class Redactor:
    """The secrets of one run, which may grow during the run. Without secrets it costs nothing."""

    def __init__(self, secrets: Mapping[str, str] | None = None) -> None:
        self._names: dict[str, str] = {}
        self._values: dict[str, None] = {}
        self._by_start: dict[str, list[str]] = {}
        self._readable: dict[str, str] = {}
        self._secret_fields: dict[str, tuple[str, ...]] = {}
        for name, value in (secrets or {}).items():
            self.learn(name, value)

    @property
    def is_empty(self) -> bool:
        """Whether it has no secret."""
        return not self._names

    def learn(self, name: str, value: str, *, readable: bool = False) -> None:
        """Redact this value from now on.

        Args:
            name: What to call it.
            value: One of less than `MIN_SECRET_CHARS` characters is not taken out.
            readable: Whether the run may read the value by its name, so that `restore` may put it back.
        """
        if readable:
            self._readable[name] = value
        self._values[value] = None
        for form in _forms(value):
            if form not in self._names:
                self._names[form] = name
                for chars in (1, 2, MIN_SECRET_CHARS):
                    self._by_start.setdefault(form[:chars], []).append(form)

    def watch(self, secret_fields: Mapping[str, tuple[str, ...]]) -> None:
        """Treat the values of these tools' fields as secrets.

        Args:
            secret_fields: Fields by the name of the tool.
        """
        self._secret_fields |= secret_fields

    def learn_call(self, tool_name: str, params: Mapping[str, Any]) -> None:
        """Learn the secrets in a call of a watched tool, as soon as the model has made it.

        Args:
            tool_name: As the model calls it: engines put the server's name before it where names collide.
            params: What the tool is given.
        """
        for field in self._fields_of(tool_name):
            value, name = params.get(field), params.get("name")
            if isinstance(value, str):
                self.learn(name if isinstance(name, str) else field.upper(), value)

    def is_given_secrets(self, tool_name: str) -> bool:
        """Return whether a tool is watched."""
        return bool(self._fields_of(tool_name))

    def _fields_of(self, tool_name: str) -> tuple[str, ...]:
        named = (name for name in self._secret_fields if tool_name == name or tool_name.endswith(f"__{name}"))
        return next((self._secret_fields[name] for name in named), ())

    @property
    def values(self) -> Iterable[str]:
        """The values that it was given, also those that are too short to be taken out."""
        return self._values.keys()

    def names_in(self, text: str) -> set[str]:
        """Return the names of the secrets that occur in a text."""
        return {span.name for span in self._find(text)}

    def text(self, text: str) -> str:
        """Return the text with a placeholder for each secret."""
        if self.is_empty:
            return text
        return _replace(text, _merge(self._find(text)))

    def json(self, value: Any) -> Any:
        """Return a JSON value with every string and every key redacted by `text`.

        A block that cannot have a placeholder in its middle is dealt with as a whole: an image or a document in Base64
        becomes a note, and a thought is left out of its list, since its signature is for the words as they were.
        """
        if self.is_empty:
            return value
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return self._block(value)
        if isinstance(value, list | tuple):
            return [clean for item in value for clean in (self.json(item),) if not _is_broken_thought(item, clean)]
        return value

    def stream(self) -> "TextStream":
        """Return a reader of text that arrives in pieces."""
        return TextStream(self)

    def restore(self, value: Any) -> Any:
        """Return a JSON value with the placeholders of readable secrets replaced by their values."""
        if isinstance(value, str):
            return _PLACEHOLDER.sub(lambda found: self._readable.get(found[1], found[0]), value)
        if isinstance(value, dict):
            return {key: self.restore(item) for key, item in value.items()}
        if isinstance(value, list | tuple):
            return [self.restore(item) for item in value]
        return value

    def forms_from(self, start: str) -> Sequence[str]:
        """Return the forms that begin with one or two characters. For `TextStream`."""
        return self._by_start.get(start, ())

    def name_of(self, form: str) -> str:
        """Return whose form it is. For `TextStream`."""
        return self._names[form]

    def _find(self, text: str) -> Iterator[_Span]:
        if len(self._names) > _MANY_FORMS:
            yield from self._find_by_start(text)
            return
        for form, name in self._names.items():
            at = text.find(form)
            while at >= 0:
                yield _Span(at, at + len(form), name)
                at = text.find(form, at + 1)

    def _find_by_start(self, text: str) -> Iterator[_Span]:
        """Look at each place once: slower for a few forms, and as fast for thousands."""
        starts, chars = self._by_start, MIN_SECRET_CHARS
        for at in range(len(text) - chars + 1):
            for form in starts.get(text[at : at + chars], ()):
                if text.startswith(form, at):
                    yield _Span(at, at + len(form), self._names[form])

    def _block(self, block: Mapping[str, Any]) -> dict[str, Any]:
        clean = {self.text(str(key)): self.json(item) for key, item in block.items()}
        if clean == block:
            return clean
        source = block.get("source")
        if isinstance(source, Mapping) and source.get("type") == "base64" and clean.get("source") != source:
            kind = str(block.get("type", "file"))
            return {"type": "text", "text": f"[{kind} left out, since it holds a secret: {_named(clean['source'])}]"}
        return clean


class _Open(NamedTuple):
    """A form that the text may turn out to hold, from `start` on."""

    start: int
    form: str


class TextStream:
    """Passes text on as it arrives, but for an end that may be the beginning of a secret: that waits for more.

    All pieces that it gives, put together, are what `Redactor.text` makes of all pieces that it got.
    """

    def __init__(self, redactor: Redactor) -> None:
        self._redactor = redactor
        self._held = ""
        self._open: list[_Open] = []
        self._found: list[_Span] = []

    def feed(self, piece: str) -> str:
        """Take a piece, and return what can be shown now."""
        if self._redactor.is_empty:
            return piece
        begins = len(self._held)
        text = self._held + piece
        self._look(text, begins, piece)
        found = _merge(self._found)
        cut = min((each.start for each in self._open), default=len(text))
        # A secret that reaches into what waits, waits too: the two may be one.
        cut = next((span.start for span in found if span.start < cut < span.end), cut)
        shown = _replace(text[:cut], [span for span in found if span.end <= cut])
        self._held = text[cut:]
        self._open = [_Open(each.start - cut, each.form) for each in self._open]
        self._found = [_Span(span.start - cut, span.end - cut, span.name) for span in found if span.end > cut]
        return shown

    def end(self) -> str:
        """Return the text that waited for more: the text has ended."""
        shown = _replace(self._held, _merge(self._found))
        self.drop()
        return shown

    def drop(self) -> None:
        """Forget what waits."""
        self._held, self._open, self._found = "", [], []

    def _look(self, text: str, begins: int, piece: str) -> None:
        candidates = self._open
        candidates += [
            _Open(at, form)
            for at in range(begins, begins + len(piece))
            for form in self._redactor.forms_from(text[at : at + 2])
        ]
        self._open = []
        for each in candidates:
            if text.startswith(each.form, each.start):
                end = each.start + len(each.form)
                self._found.append(_Span(each.start, end, self._redactor.name_of(each.form)))
            elif len(text) - each.start < len(each.form) and each.form.startswith(text[each.start :]):
                self._open.append(each)


def _forms(value: str) -> set[str]:
    """Return how a value may be written, each in at least `MIN_SECRET_CHARS` characters."""
    forms: set[str] = set()
    for plain in {value, value.strip()}:
        if len(plain) >= MIN_SECRET_CHARS:
            forms |= {plain, html.escape(plain), html.escape(plain, quote=False), repr(plain)[1:-1]}
            forms |= _json_forms(plain) | _url_forms(plain) | _base64_forms(plain)
    return {form for form in forms if len(form) >= MIN_SECRET_CHARS}


def _json_forms(plain: str) -> set[str]:
    once = {json.dumps(plain, ensure_ascii=only_ascii)[1:-1] for only_ascii in (True, False)}
    # JSON inside a string of JSON: what a tool that takes a body is given.
    twice = {json.dumps(form, ensure_ascii=False)[1:-1] for form in once}
    return once | twice


def _url_forms(plain: str) -> set[str]:
    forms = {quote(plain, safe="", errors="replace"), quote(plain, errors="replace")}
    forms.add(quote_plus(plain, errors="replace"))
    return forms | {_PERCENT.sub(lambda found: found[0].lower(), form) for form in forms}


def _base64_forms(plain: str) -> set[str]:
    """Return the Base64 forms of the value, after 0, 1 or 2 other bytes in its group of three."""
    data = plain.encode("utf-8", "replace")
    forms: set[str] = set()
    for before in range(3):
        # Only the characters that depend on nothing but the value.
        first, last = -(-before * 8 // 6), (before + len(data)) * 8 // 6
        form = b64encode(bytes(before) + data).decode()[first:last]
        forms |= {form, form.replace("+", "-").replace("/", "_")}
    return forms


def _merge(spans: Iterable[_Span]) -> list[_Span]:
    """Return spans in order, those that overlap as one, under the name of the longest that comes first."""
    merged: list[_Span] = []
    for span in sorted(spans, key=lambda each: (each.start, -each.end, each.name)):
        if merged and span.start < merged[-1].end:
            last = merged[-1]
            merged[-1] = _Span(last.start, max(last.end, span.end), last.name)
        else:
            merged.append(span)
    return merged


def _replace(text: str, spans: Sequence[_Span]) -> str:
    if not spans:
        return text
    parts: list[str] = []
    at = 0
    for span in spans:
        parts += (text[at : span.start], placeholder(span.name))
        at = span.end
    return "".join((*parts, text[at:]))


def _is_broken_thought(block: Any, clean: Any) -> bool:
    return isinstance(block, Mapping) and block.get("type") == "thinking" and clean != block


def _named(clean: Any) -> str:
    return ", ".join(sorted({found[1] for found in _PLACEHOLDER.finditer(json.dumps(clean))}))
