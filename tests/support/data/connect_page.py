"""The lines of docs/connect.md, as the console's page has them.

Write them with ``python -m tests.support.data.connect_page``.
"""

from collections.abc import Iterator
from typing import Final

from nova_workers.console.client_lines import CLIENTS, Client, setup
from tests.support.data.documents import ROOT

PAGE: Final = ROOT / "docs" / "connect.md"
_HEAD: Final = "## Address and key\n"
_URL: Final = "http://127.0.0.1:8700"
"""The fleet of `nova up`."""
_AGENT: Final = "nova"
_NOT_RUN: Final = "<!-- not run: it needs a fleet; tests/integration/console/test_client_lines.py has one -->\n"


def rendered() -> str:
    """Return the part of the page that is made of the list of clients: from its first heading to the end."""
    return _HEAD + f"\n```sh\n{setup(_URL)}```\n" + "".join(part for client in CLIENTS for part in _section(client))


def prose_of(page: str) -> str:
    """Return what people write of the page: all before the rendered part.

    Raises:
        ValueError: The page has no such part.
    """
    return page[: page.index(_HEAD)]


def _section(client: Client) -> Iterator[str]:
    yield f"\n## {client.title}\n\n{client.note}"
    if client.install is not None:
        yield f" It needs `{client.install}`."
    yield f" [More]({client.page})\n"
    for lines in client.lines:
        yield f"\n{lines.place}:\n\n"
        yield _NOT_RUN if lines.language == "python" else ""
        yield f"```{lines.language}\n{lines.text(_URL, _AGENT)}```\n"


if __name__ == "__main__":
    PAGE.write_text(prose_of(PAGE.read_text("utf-8")) + rendered(), "utf-8")
