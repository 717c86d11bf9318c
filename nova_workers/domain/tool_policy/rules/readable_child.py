"""Turns HTML into Markdown, as a program of its own: HTML in, Markdown out.

Apart from the worker, because the library holds the interpreter's lock while it works (2.7 s for a page of 2 MB,
measured), and pages are written by strangers: one that brings the parser down ends this program and no worker.
"""

import resource
import sys

from html_to_markdown import ConversionOptions, convert

MAX_MEMORY_BYTES = 2 << 30


def main() -> int:
    """Convert standard input."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    html = sys.stdin.buffer.read().decode(errors="replace")
    options = ConversionOptions(extract_metadata=False, skip_images=True, strip_tags=["script", "style"])
    sys.stdout.buffer.write((convert(html, options).content or "").encode(errors="replace"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
