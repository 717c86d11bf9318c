"""Text arguments of a command: literal, from a file, or from stdin."""

import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from nova_workers.base.errors import InvalidInput

_STDIN = "-"


@contextmanager
def blame_file(file: str | None) -> Generator[None]:
    """Name a file in each error about its content, also in the API's. Without a file it changes nothing.

    Raises:
        InvalidInput: As the block raised it, with the file in front.
    """
    try:
        yield
    except InvalidInput as error:
        if file is None:
            raise
        raise InvalidInput(f"{'stdin' if file == '-' else file}: {error.message}", **error.fields) from error


def read_text(value: str) -> str:
    """Return the text of an argument: ``@FILE`` is that of a file, ``-`` that of stdin, all else is literal.

    Raises:
        InvalidInput: It cannot be read, or is not UTF-8.
    """
    source = "stdin" if value == _STDIN else value.removeprefix("@")
    try:
        if value == _STDIN:
            return sys.stdin.buffer.read().decode("utf-8")
        return Path(source).read_text(encoding="utf-8") if value.startswith("@") else value
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{source!r} cannot be read as text: {error}") from error


def read_option(value: str | None) -> str | None:
    """Return the text of an option, as `read_text` does; None if it is not given."""
    return None if value is None else read_text(value)


def read_file(file: str) -> str:
    """Return the text of a file; ``-`` is stdin.

    Raises:
        InvalidInput: It cannot be read, or is not UTF-8.
    """
    return read_text(file if file == _STDIN else f"@{file}")
