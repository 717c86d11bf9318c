"""A program of its own: prints the ids of Claude models that occur in a file. Without imports of ours.

A worker that scanned hundreds of megabytes itself would block its event loop, since `re` keeps the interpreter's lock.
"""

import re
import sys

_CHUNK_BYTES = 8_388_608
_LONGEST_ID_BYTES = 64
_ID = re.compile(rb"claude-[a-z]+-\d[\w.-]{0,50}(?![\w.@-])")


def main(path: str) -> None:
    """Print each id once."""
    found: set[bytes] = set()
    tail = b""
    with open(path, "rb") as file:
        while chunk := file.read(_CHUNK_BYTES):
            found.update(_ID.findall(tail + chunk))
            tail = chunk[-_LONGEST_ID_BYTES:]
    for model_id in sorted(found):
        sys.stdout.write(model_id.decode() + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
