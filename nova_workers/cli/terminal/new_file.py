"""Files that commands write."""

import uuid
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from nova_workers.base.errors import InvalidInput

_PRIVATE = 0o600


@contextmanager
def new_file(file: Path) -> Generator[TextIO]:
    """Open a file that has its name only when it is complete.

    Line ends are written as they are given. It can be read by the user alone.

    Raises:
        InvalidInput: It exists.
    """
    if file.exists():
        raise InvalidInput(f"{str(file)!r} exists. Choose another name.", field="file")
    making = file.with_name(f".{file.name}.{uuid.uuid4().hex[:8]}")
    try:
        making.touch(mode=_PRIVATE)
        with making.open("w", encoding="utf-8", newline="") as opened:
            yield opened
        making.rename(file)
    except BaseException:
        making.unlink(missing_ok=True)
        raise
