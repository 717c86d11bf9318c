"""Clients' addresses, as limits count them."""

from __future__ import annotations

import asyncio
import socket

import pytest

from nova_workers.base.http_server.addresses import TrustedProxies, address_group
from tests.requirements import proves
from tests.support.waiting import until


@pytest.mark.parametrize(
    ("host", "group"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("2001:db8:1:2::", "2001:db8:1:2::/64"),
        ("unknown", "unknown"),
        ("x" * 1_000, "x" * 64),
    ],
)
def test_an_address_of_ipv6_counts_with_its_network(host: str, group: str) -> None:
    assert address_group(host) == group


@pytest.mark.parametrize(
    ("peer", "stated", "client"),
    [
        ("10.0.0.1", [b"203.0.113.7"], "203.0.113.7"),
        # What a client wrote itself stands left of what proxies saw.
        ("10.0.0.1", [b"1.1.1.1, 203.0.113.7"], "203.0.113.7"),
        ("10.0.0.1", [b"1.1.1.1", b"203.0.113.7, 10.0.0.2"], "203.0.113.7"),
        ("::ffff:10.0.0.1", [b"203.0.113.7, ::ffff:10.0.0.2"], "203.0.113.7"),
        ("10.0.0.1", [b"203.0.113.7:4711"], "203.0.113.7"),
        ("10.0.0.1", [b"[2001:db8::1]:4711"], "2001:db8::1"),
        ("10.0.0.1", [b"10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        ("10.0.0.1", [b"203.0.113.7, unknown"], "unknown"),
        ("10.0.0.1", [], None),
        ("10.0.0.1", [b""], None),
        ("192.0.2.1", [b"203.0.113.7"], None),
    ],
)
def test_the_client_is_the_first_from_the_right_that_is_no_trusted_proxy(
    peer: str, stated: list[bytes], client: str | None
) -> None:
    headers = [(b"host", b"localhost"), *((b"x-forwarded-for", value) for value in stated)]
    assert TrustedProxies(["10.0.0.0/8"]).stated_client(peer, headers) == client


def test_a_proxy_is_trusted_by_address_or_network() -> None:
    proxies = TrustedProxies(["10.0.0.0/8", "192.0.2.1", "fd00::/8"])
    assert all(host in proxies for host in ("10.1.2.3", "::ffff:10.1.2.3", "192.0.2.1", "fd00::1"))
    assert not any(host in proxies for host in ("11.0.0.1", "192.0.2.2", "fe80::1", "", "localhost"))


@proves("security.sign-in")
async def test_a_proxy_is_trusted_by_a_name_whose_addresses_change(monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[list[str] | int] = [["10.0.0.7", "fd00::7"], socket.EAI_AGAIN, ["10.0.0.8"], socket.EAI_NONAME]
    seen = asyncio.Queue[None]()

    async def getaddrinfo(name: str, _port: None, **_: object) -> list[tuple[object, ...]]:
        assert name == "console"
        answer = answers.pop(0)
        if isinstance(answer, int):
            raise socket.gaierror(answer, "no address")
        return [(0, 0, 0, "", (address, 0)) for address in answer]

    async def sleep(_delay_s: float) -> None:
        seen.put_nowait(None)
        await turn.acquire()

    turn = asyncio.Semaphore(0)
    monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", getaddrinfo)
    monkeypatch.setattr("nova_workers.base.http_server.addresses.asyncio.sleep", sleep)
    proxies = TrustedProxies(["console", "192.0.2.1"])
    resolving = asyncio.create_task(proxies.run())
    hosts = ("10.0.0.7", "fd00::7", "10.0.0.8", "192.0.2.1")
    found: list[tuple[str, ...]] = []
    for _ in range(4):
        await seen.get()
        found.append(tuple(host for host in hosts if host in proxies))
        turn.release()
    resolving.cancel()
    assert found == [
        ("10.0.0.7", "fd00::7", "192.0.2.1"),
        # Name servers that are away change nothing.
        ("10.0.0.7", "fd00::7", "192.0.2.1"),
        ("10.0.0.8", "192.0.2.1"),
        ("192.0.2.1",),
    ]


@proves("security.sign-in")
async def test_a_name_that_can_be_none_keeps_no_other_from_being_resolved() -> None:
    proxies = TrustedProxies(["console..example", "a" * 64, "localhost"])
    resolving = asyncio.create_task(proxies.run())
    await until(lambda: "127.0.0.1" in proxies or "::1" in proxies or resolving.done())
    assert not resolving.done()
    resolving.cancel()
