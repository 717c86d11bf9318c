"""Pages of the web as text."""

import asyncio
import gzip
import time
from collections.abc import AsyncIterator

import pytest

from nova_workers.base.errors import ToolFailure
from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.contracts.ports import FetchedPage
from nova_workers.domain.tool_policy.rules.pages import WebPages
from tests.requirements import proves
from tests.support.servers.web_server import WebServer, redirect, reply, web_server

HTML = """<!doctype html><html><head><title>T</title><style>p {color: red}</style><script>alert("no")</script></head>
<body><h1>Tea &amp; biscuits</h1><p>Very <b>good</b>, see <a href="/more">more</a>.</p><ul><li>one<li>two</ul>
<table><tr><th>a<th>b<tr><td>1<td>2</table></body></html>"""


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    """The server."""
    async with web_server() as web:
        yield web


async def _fetch(web: WebServer, path: str = "/", max_chars: int = 10_000, max_bytes: int = 500_000) -> FetchedPage:
    rules = OutboundRules(allow_hosts=(f"127.0.0.1:{web.port}",), max_bytes=max_bytes)
    return await WebPages(Outbound(rules), max_chars=max_chars).fetch(f"http://127.0.0.1:{web.port}{path}")


async def test_html_becomes_markdown_without_scripts_and_styles(web: WebServer) -> None:
    web.page("/", redirect("/real"))
    web.page("/real", reply(gzip.compress(HTML.encode()), kind="text/html; charset=utf-8", content_encoding="gzip"))
    page = await _fetch(web)
    assert (page.url, page.status, page.content_type) == (f"http://127.0.0.1:{web.port}/real", 200, "text/html")
    assert "# Tea & biscuits" in page.text
    assert "Very **good**, see [more](/more)." in page.text
    assert "- one\n- two" in page.text
    assert "alert" not in page.text
    assert "color" not in page.text
    assert not page.truncated


@pytest.mark.parametrize(
    ("kind", "body", "text"),
    [
        ("text/plain; charset=iso-8859-1", "Käse".encode("latin-1"), "Käse"),
        ('text/plain; charset="utf-16"', "Käse".encode("utf-16"), "Käse"),
        ("text/plain; charset=no-such-thing", "Käse".encode(), "Käse"),
        ("text/plain; charset=idna", b"x" * 50, "x" * 50),
        ("text/plain; charset=unicode_escape", rb"\x41", r"\x41"),
        ("text/plain; charset=\xff;;=", b"x", "x"),
        ("application/json", b'{"a": 1}', '{"a": 1}'),
        ("application/ld+json", b"{}", "{}"),
        ("TEXT/MARKDOWN", b"# x", "# x"),
        ("", b"no type", "no type"),
        ("text/html", "<p>Käse</p>".encode(), "Käse"),
        ("text/html; charset=windows-1252", "<p>Käse</p>".encode("cp1252"), "Käse"),
        ("text/html", b"", ""),
        ("text/plain", b"\xff\xfe\xfd", "\ufffd\ufffd\ufffd"),
    ],
)
async def test_text_is_read_as_its_server_says(web: WebServer, kind: str, body: bytes, text: str) -> None:
    web.page("/", reply(body, kind=kind))
    assert (await _fetch(web)).text == text


@pytest.mark.parametrize("kind", ["image/png", "application/octet-stream", "application/pdf", "video/mp4", ""])
async def test_binary_content_is_refused(web: WebServer, kind: str) -> None:
    web.page("/", reply(b"\x89PNG\x00\x00", kind=kind))
    with pytest.raises(ToolFailure, match="no text"):
        await _fetch(web)


async def test_an_error_page_is_a_page(web: WebServer) -> None:
    page = await _fetch(web, "/missing")
    assert (page.status, page.text) == (404, "no")


async def test_a_long_page_is_cut(web: WebServer) -> None:
    web.page("/", reply(b"x" * 5_000))
    web.page("/html", reply(b"<p>" + b"word " * 5_000, kind="text/html"))
    for path in ("/", "/html"):
        page = await _fetch(web, path, max_chars=1_000)
        assert page.truncated
        assert 990 <= len(page.text) <= 1_000
    assert (await _fetch(web, "/", max_bytes=100)).truncated


async def test_the_model_gets_the_refusal_of_the_guard() -> None:
    with pytest.raises(ToolFailure, match="public internet"):
        await WebPages(Outbound(OutboundRules())).fetch("http://169.254.169.254/latest/meta-data/")


@proves("security.responses")
async def test_a_page_made_to_bring_a_parser_down_blocks_no_other_call(web: WebServer) -> None:
    web.page("/", reply(b"<blockquote>" * 40_000, kind="text/html"))
    fetching = asyncio.create_task(_fetch(web))
    longest_s, last_s = 0.0, time.thread_time()
    while not fetching.done():
        await asyncio.sleep(0.005)
        longest_s, last_s = max(longest_s, time.thread_time() - last_s), time.thread_time()
    assert longest_s < 0.4
    await fetching
