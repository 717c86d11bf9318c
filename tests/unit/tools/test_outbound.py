"""The guard of outbound requests, with a server on loopback that only tests may reach."""

import asyncio
import gzip
import ssl
import subprocess
import tracemalloc
import zlib
from collections.abc import AsyncIterator, Sequence
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.errors import OutboundFailed
from nova_workers.base.outbound.requests import Outbound
from nova_workers.base.outbound.rules import OutboundRules
from tests.requirements import proves
from tests.support.servers.web_server import WebServer, redirect, reply, web_server
from tests.support.waiting import until
from tests.unit.tools.test_addresses import PRIVATE_4, PRIVATE_6, WRAPPERS

PUBLIC = "93.184.216.34"
CONTEXT = ssl.create_default_context()
"""Made once: it takes 30 ms."""


class Names:
    """A resolver with configured answers that counts its calls."""

    def __init__(self, **names: Sequence[str] | list[Sequence[str]]) -> None:
        self.names: dict[str, Any] = {name.replace("_", "."): found for name, found in names.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> Sequence[str]:
        self.asked.append(host)
        found = self.names[host]
        return found.pop(0) if isinstance(found, list) else found


@pytest.fixture
async def web() -> AsyncIterator[WebServer]:
    """The server."""
    async with web_server() as web:
        yield web


def _outbound(web: WebServer | None = None, names: Names | None = None, **rules: Any) -> Outbound:
    """Return a client that reaches the test's server by the names given, and by no other."""
    port = web.port if web is not None else 0
    rules.setdefault("allow_hosts", tuple(f"{name}:{port}" for name in (names.names if names else ("127.0.0.1",))))
    return Outbound(OutboundRules(**rules), resolver=names or Names())


async def _refused(outbound: Outbound, url: str, **given: Any) -> str:
    with pytest.raises(OutboundFailed) as caught:
        await outbound.request("GET", url, **given)
    assert caught.value.refused, caught.value.message
    return caught.value.message


async def test_a_page_is_read_with_its_headers(web: WebServer) -> None:
    web.page("/x?y=1", reply(b"hello", x_note="n"))
    answer = await _outbound(web).request("GET", f"http://127.0.0.1:{web.port}/x?y=1")
    assert (answer.status, answer.body, answer.headers["x-note"], answer.truncated) == (200, b"hello", "n", False)


NUMBERS = [
    "2130706433",
    "0x7f000001",
    "0x7F.0.0.1",
    "127.1",
    "127.0.1",
    "0177.0.0.1",
    "017700000001",
    "0x7f.1",
    "0",
    "0x",
]
PLAIN = [
    *PRIVATE_4,
    *(f"[{address}]" for address in PRIVATE_6),
    "[::ffff:127.0.0.1]",
    "[::ffff:7f00:1]",
    "[0:0:0:0:0:0:0:1]",
]


@pytest.mark.parametrize("host", [*NUMBERS, *PLAIN, "127.0.0.1.", "[fe80::1%25eth0]", "①②⑦.⓪.⓪.①", "127。0。0。1"])
@pytest.mark.parametrize("scheme", ["http", "https"])
@proves("security.addresses")
async def test_no_spelling_of_a_private_address_is_accepted(host: str, scheme: str) -> None:
    await _refused(Outbound(OutboundRules()), f"{scheme}://{host}/")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST", "localhost:443"])
async def test_a_name_of_this_machine_is_refused_by_its_addresses(host: str) -> None:
    assert "public internet" in await _refused(Outbound(OutboundRules()), f"http://{host}/")


@given(
    address=st.sampled_from(PRIVATE_4).map(IPv4Address),
    wrapper=st.sampled_from([None, *WRAPPERS]),
    mixed=st.booleans(),
)
def test_a_name_with_a_private_address_among_its_addresses_is_refused(
    address: IPv4Address, wrapper: str | None, mixed: bool
) -> None:
    found = [str(address) if wrapper is None else WRAPPERS[wrapper](address)]
    names = Names(evil_test=tuple([PUBLIC, *found] if mixed else found))
    outbound = Outbound(OutboundRules(), resolver=names, verify=CONTEXT)
    asyncio.run(_refused(outbound, "http://evil.test/"))


@given(
    st.text(max_size=60),
    st.sampled_from(["http://", "https://", "", "//", "http:", "http://[", "file://", "http://x@"]),
)
def test_any_text_as_url_is_refused_and_raises_nothing_else(text: str, start: str) -> None:
    async def attempt() -> None:
        async def nowhere(host: str, port: int) -> Sequence[str]:
            return ("127.0.0.1",)

        with pytest.raises(OutboundFailed):
            await Outbound(OutboundRules(), resolver=nowhere, verify=CONTEXT).request("GET", start + text)

    asyncio.run(attempt())


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("ftp://example.test/", "only http and https"),
        ("file:///etc/passwd", "only http and https"),
        ("gopher://example.test/", "only http and https"),
        ("http://user:secret@example.test/", "user name or password"),
        ("http://user@example.test/", "user name or password"),
        ("http://example.test:22/", "port 22"),
        ("http://example.test:6379/", "port 6379"),
        ("http:///x", ""),
        ("not an address", ""),
        ("http://[::1", ""),
    ],
)
async def test_a_value_that_is_no_url_is_refused(url: str, why: str) -> None:
    message = await _refused(_outbound(names=Names(example_test=(PUBLIC,)), allow_hosts=()), url)
    assert why in message


async def test_the_message_does_not_reveal_the_address_of_a_host_name() -> None:
    message = await _refused(_outbound(names=Names(evil_test=("10.1.2.3",)), allow_hosts=()), "http://evil.test/")
    assert "10.1.2.3" not in message


@proves("security.addresses")
async def test_the_host_is_resolved_once_and_the_checked_address_is_used(web: WebServer) -> None:
    web.page("/", reply(b"first"))
    names = Names(site_test=[("127.0.0.1",), ("127.0.0.3",)])
    answer = await _outbound(web, names).request("GET", f"http://site.test:{web.port}/")
    assert (answer.body, names.asked, answer.url) == (b"first", ["site.test"], f"http://site.test:{web.port}/")
    assert f"host: site.test:{web.port}\r\n" in web.heads[0].lower()


@proves("security.addresses")
async def test_each_redirect_resolves_and_checks_the_host_again(web: WebServer) -> None:
    web.page("/", redirect(f"http://other.test:{web.port}/inner"))
    web.page("/inner", reply(b"secret"))
    names = Names(site_test=("127.0.0.1",), other_test=[("127.0.0.1",)])
    outbound = _outbound(web, names, allow_hosts=(f"site.test:{web.port}",), ports=(web.port,))
    await _refused(outbound, f"http://site.test:{web.port}/")
    assert len(web.heads) == 1


async def test_the_next_address_is_tried_if_one_does_not_answer(web: WebServer) -> None:
    web.page("/", reply(b"here"))
    names = Names(site_test=("127.0.0.77", "127.0.0.1"))
    assert (await _outbound(web, names).request("GET", f"http://site.test:{web.port}/")).body == b"here"


@pytest.mark.parametrize(
    "to",
    [
        "http://127.0.0.1:{port}/inner",
        "http://169.254.169.254/latest/meta-data/",
        "http://[::1]/",
        "http://2130706433/",
        "//127.0.0.1/x",
        "https://10.0.0.1/",
        "http://user:pw@site.test:{port}/inner",
        "file:///etc/passwd",
        "gopher://site.test/",
    ],
)
@proves("security.addresses")
async def test_a_redirect_passes_the_same_guard(web: WebServer, to: str) -> None:
    web.page("/", redirect(to.format(port=web.port)))
    web.page("/inner", reply(b"secret"))
    await _refused(_outbound(web, Names(site_test=("127.0.0.1",))), f"http://site.test:{web.port}/")
    assert len(web.heads) == 1


async def test_redirects_are_followed_up_to_a_bound(web: WebServer) -> None:
    for at in range(4):
        web.page(f"/{at}", redirect(f"/{at + 1}"))
    web.page("/4", reply(b"end"))
    url = f"http://127.0.0.1:{web.port}/0"
    answer = await _outbound(web, max_redirects=4).request("GET", url)
    assert (answer.body, answer.url) == (b"end", url[:-1] + "4")
    with pytest.raises(OutboundFailed, match="More than 3 redirects"):
        await _outbound(web, max_redirects=3).request("GET", url)
    web.page("/0", redirect("/0"))
    with pytest.raises(OutboundFailed, match="More than 4 redirects"):
        await _outbound(web, max_redirects=4).request("GET", url)


async def test_a_request_that_is_not_to_follow_gets_the_redirect_itself(web: WebServer) -> None:
    web.page("/", redirect("/x"))
    answer = await _outbound(web).request("POST", f"http://127.0.0.1:{web.port}/", content=b"{}", follow=False)
    assert (answer.status, answer.headers["location"]) == (302, "/x")
    assert web.heads[0].startswith("POST")


async def test_the_body_of_a_redirect_is_not_read(web: WebServer) -> None:
    bomb = gzip.compress(bytes(50_000_000))
    head = reply(bomb, status="302 Found", location="/end", content_encoding="gzip")
    web.page("/", head)
    web.page("/end", reply(b"end"))
    assert (await _outbound(web).request("GET", f"http://127.0.0.1:{web.port}/")).body == b"end"


@pytest.mark.parametrize("length", ["", "5000"])
async def test_a_long_body_is_cut(web: WebServer, length: str) -> None:
    web.page("/", reply(b"x" * 5_000, content_length=length))
    answer = await _outbound(web, max_bytes=1_000).request("GET", f"http://127.0.0.1:{web.port}/")
    assert (answer.body, answer.truncated) == (b"x" * 1_000, True)
    whole = await _outbound(web, max_bytes=5_000).request("GET", f"http://127.0.0.1:{web.port}/")
    assert (len(whole.body), whole.truncated) == (5_000, False)


def _raw_deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(data) + packer.flush()


@pytest.mark.parametrize(
    ("encoding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("deflate", _raw_deflate)]
)
@proves("security.responses")
async def test_compressed_bodies_are_decompressed_within_bounds(web: WebServer, encoding: str, pack: Any) -> None:
    web.page("/", reply(pack(b"hello " * 1_000), content_encoding=encoding))
    web.page("/bomb", reply(pack(bytes(100_000_000)), content_encoding=encoding))
    outbound = _outbound(web, max_bytes=1_000_000)
    assert (await outbound.request("GET", f"http://127.0.0.1:{web.port}/")).body == b"hello " * 1_000
    tracemalloc.start()
    answer = await outbound.request("GET", f"http://127.0.0.1:{web.port}/bomb")
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (len(answer.body), answer.truncated) == (1_000_000, True)
    assert peak_bytes < 10_000_000


@pytest.mark.parametrize(
    "page",
    [
        reply(b"not packed", content_encoding="gzip"),
        reply(b"x", content_encoding="br"),
        reply(b"x", content_encoding="gzip, gzip"),
        b"nonsense\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nshort",
        b"",
        redirect("http://[::1"),
    ],
)
async def test_a_broken_answer_is_a_failure_and_no_crash(web: WebServer, page: bytes) -> None:
    web.page("/", page)
    with pytest.raises(OutboundFailed):
        await _outbound(web).request("GET", f"http://127.0.0.1:{web.port}/")


@pytest.mark.parametrize(
    "page", [b"HTTP/1.1 200 OK\r\n\r\nslow<stall>", b"<stall>", reply(b"", content_length="9") + b"<stall>"]
)
async def test_a_hanging_server_times_out(web: WebServer, page: bytes) -> None:
    web.page("/", page)
    with pytest.raises(OutboundFailed, match="did not answer within"):
        await asyncio.wait_for(_outbound(web, timeout_s=0.3).request("GET", f"http://127.0.0.1:{web.port}/"), 60)
    # A full machine may take so long to connect that the server never saw it.
    await until(lambda: web.left.is_set() or not web.heads)


async def test_proxies_credentials_and_cookies_of_the_environment_are_not_used(
    web: WebServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password secret\n")
    netrc.chmod(0o600)
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    web.page("/", reply(b"x", set_cookie="a=b"))
    outbound = _outbound(web)
    for _ in range(2):
        await outbound.request("GET", f"http://127.0.0.1:{web.port}/")
    assert all("authorization" not in head.lower() and "cookie" not in head.lower() for head in web.heads)


async def test_credentials_do_not_follow_a_redirect_to_another_host(web: WebServer) -> None:
    names = Names(site_test=("127.0.0.1",), other_test=("127.0.0.1",))
    web.page("/", redirect(f"http://other.test:{web.port}/x"))
    web.page("/x", reply(b"x"))
    headers = {"Authorization": "Bearer secret"}
    await _outbound(web, names).request("GET", f"http://site.test:{web.port}/", headers=headers)
    assert ["secret" in head for head in web.heads] == [True, False]


CERTIFY = (
    "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 "
    "-subj /CN=site.test -addext subjectAltName=DNS:site.test"
).split()


async def test_a_certificate_is_verified_against_the_name_and_not_the_address(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "cert.pem"
    await asyncio.to_thread(
        subprocess.run,
        (*CERTIFY, "-keyout", key, "-out", certificate),
        check=True,
        capture_output=True,
    )
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(certificate, key)
    trusting = ssl.create_default_context(cafile=str(certificate))
    async with web_server(tls=tls) as web:
        web.page("/", reply(b"sealed"))
        hosts = (f"site.test:{web.port}", f"other.test:{web.port}")
        names = Names(site_test=("127.0.0.1",), other_test=("127.0.0.1",))
        outbound = Outbound(OutboundRules(allow_hosts=hosts), resolver=names, verify=trusting)
        assert (await outbound.request("GET", f"https://site.test:{web.port}/")).body == b"sealed"
        with pytest.raises(OutboundFailed, match=r"(?i)certificate"):
            await outbound.request("GET", f"https://other.test:{web.port}/")


@proves("security.addresses")
async def test_only_the_exact_host_that_the_operator_names_is_reached(web: WebServer) -> None:
    web.page("/", reply(b"x"))
    outbound = _outbound(web, allow_hosts=(f"127.0.0.1:{web.port}",))
    assert (await outbound.request("GET", f"http://127.0.0.1:{web.port}/")).status == 200
    await _refused(outbound, f"http://127.0.0.1:{web.port + 1}/")
    await _refused(outbound, f"http://127.0.0.2:{web.port}/")
    await _refused(Outbound(OutboundRules()), f"http://127.0.0.1:{web.port}/")
