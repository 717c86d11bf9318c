"""Words pydantic's errors for the author of the input, without regular expressions or library terms."""

import difflib
import types
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

from pydantic import BaseModel

ACCEPTED_FORMS: Final[Mapping[str, str]] = {
    r"\S": "give some text that is not blank",
    r"^https?://": "begin with http:// or https://",
    r"^[a-z0-9][a-z0-9-]*$": "use small letters, digits and hyphens, and begin with a letter or a digit",
    r"^[0-9a-f]{64}$": "give 64 digits and letters from a to f",
    r"^[a-z0-9]+(-[a-z0-9]+)*$": "use small letters and digits, with single hyphens between them",
    r"^[a-zA-Z0-9][a-zA-Z0-9_-]*$": "use letters, digits, _ and -, and begin with a letter or a digit",
    r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$": "use at most 64 letters, digits, ., _ and -; the first is no mark",
    r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,119}$": "use at most 120 letters, digits, ., _, : and -; the first is no mark",
    r"^[a-z0-9][a-z0-9._:-]{0,91}$": "use at most 92 small letters, digits, ., _, : and -; the first is no mark",
    r"^[A-Za-z0-9_-]{1,64}$": "use 1 to 64 letters, digits, _ and -",
    r"^[A-Za-z0-9_-]{1,80}$": "use 1 to 80 letters, digits, _ and -",
    r"^[A-Za-z0-9_:-]{1,120}$": "use 1 to 120 letters, digits, _, : and -",
    r"^[A-Za-z0-9_+/-]{1,64}$": "use 1 to 64 letters, digits, _, +, / and -",
    r"^[A-Z][A-Z0-9_]{0,63}$": "use at most 64 capital letters, digits and _, and begin with a letter",
    r"^[\x20-\x7e]{1,200}$": "use 1 to 200 printable ASCII characters",
    r"^[\x21-\x7e]+$": "use printable ASCII characters without blanks",
    r"^[^\x00]+$": "leave out the character U+0000",
    r"^[^\x00]*[^\x00\s][^\x00]*$": "give some text, without the character U+0000",
    r"^[^\x00-\x20]+$": "leave out blanks and control characters",
    r"^[a-z0-9][a-z0-9._:-]{0,99}$": "use at most 100 small letters, digits, ., _, : and -; the first is no mark",
    r"^[a-z0-9][a-z0-9-]{0,62}$": "use at most 63 small letters, digits and -; begin with a letter or a digit",
    r"^[a-z0-9][a-z0-9_-]{0,62}$": "use at most 63 small letters, digits, _ and -; begin with a letter or a digit",
    r"^/[^\x00-\x1f]*$": "begin with a slash, and leave out control characters",
    r"^[^\x00-\x1f]*$": "write one line, without control characters",
    r"^[^\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]*$": "write one line, without control characters",
    r"^[^\x00\r\n]*[^\x00\s][^\x00\r\n]*$": "write one line that is not blank",
    r"^[^\s.]+(?:\.[^\s.]+)*$": "give names with dots between them, such as issue.labels.0",
    r"^wait_[0-9A-Z]{26}$": "give the id of a wait, such as wait_01JZ0000000000000000000000",
    r"^tst_[0-9A-Z]{26}$": "give the id of a step, such as tst_01JZ0000000000000000000000",
    r"^[a-z][a-z0-9_-]{0,39}:[A-Za-z_][A-Za-z0-9_]{0,63}$": "give a project and a function of it, as in shop:polite",
    r"^https?://[^\s/]\S*$": "give an address that begins with http:// or https://, without blanks",
    r"^https?://[^/\s]+$": "give http:// or https:// and a host, without a path or a slash at the end",
}
"""The form of a value that fits, for each pattern of a field."""

_PREFIXES = ("Value error, ", "Assertion failed, ")


def place_of(item: Mapping[str, Any]) -> str:
    """Return the path of an error in its input, such as ``responsibilities.2.title``; empty for the input itself."""
    return ".".join(str(part) for part in item["loc"])


def problem_of(item: Mapping[str, Any], model: object = None) -> str:
    """Return the problem in words, without its place.

    Args:
        item: One of `pydantic.ValidationError.errors()`.
        model: The type that was validated, to name the fields that there are; its path is the item's ``loc``.
    """
    match item["type"]:
        case "extra_forbidden":
            return _unknown_field(str(item["loc"][-1]), known_fields(model, item["loc"]))
        case "string_pattern_mismatch":
            form = ACCEPTED_FORMS.get(item.get("ctx", {}).get("pattern", ""))
            return f"it has not the form that it needs; {form}" if form else "it has not the form that it needs"
        case "union_tag_not_found":
            # The field's name, which is usually `type`, is in the context, which some callers leave out.
            name = item.get("ctx", {}).get("discriminator", "'type'")
            return f"the field {name} is missing, which says what the others are"
        case _:
            words = str(item["msg"])
            for prefix in _PREFIXES:
                words = words.removeprefix(prefix)
            return words


def known_fields(model: object, path: Sequence[str | int]) -> list[str]:
    """Return the names of the fields that an object at a place may have.

    Args:
        model: The type of the whole input.
        path: The place of one of the object's fields, known or not.
    """
    kinds = [model]
    for part in path[:-1]:
        kinds = [inner for kind in kinds for inner in _inside(kind, part)]
    names = [name for kind in kinds for member in _members(kind) for name in _fields(member)]
    return list(dict.fromkeys(names))


def _unknown_field(name: str, known: Sequence[str]) -> str:
    close = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    fields = f"{' The' if hint else '; the'} fields are: {', '.join(known)}" if known else ""
    return f"there is no such field{hint}{fields}"


def _inside(kind: object, part: str | int) -> Iterator[object]:
    """Return the types that a part of a path may lead to."""
    for member in _members(kind):
        fields = _fields(member)
        if part in fields:
            yield fields[str(part)]
        if _is_tag(member, part):
            # A union names the member that it chose before the field, which may have the same name.
            yield member
        if arguments := get_args(member):
            # Of a list its items; of a mapping its values.
            yield arguments[0] if isinstance(part, int) else arguments[-1]


def _members(kind: object) -> Iterator[object]:
    """Return the types that a value of this type may have, without what is written around them."""
    origin = get_origin(kind)
    if origin is Annotated:
        yield from _members(get_args(kind)[0])
    elif origin is Union or origin is types.UnionType:
        for each in get_args(kind):
            yield from _members(each)
    else:
        yield kind


def _fields(kind: object) -> dict[str, object]:
    if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
        return {}
    return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}


def _is_tag(kind: object, part: str | int) -> bool:
    literals = [get_args(each) for each in _fields(kind).values() if get_origin(each) is Literal]
    return getattr(kind, "__name__", None) == part or any(part in values for values in literals)
