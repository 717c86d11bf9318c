"""Addresses in logs, errors and traces: their path and query may be a secret, so only scheme and host are shown."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator

import pytest
import structlog

from nova_workers.base.errors import OutboundFailed
from nova_workers.base.observability.addresses import bare_address, bare_addresses
from nova_workers.base.outbound.requests import Outbound, check_address
from nova_workers.base.outbound.rules import OutboundRules
from tests.requirements import proves
from tests.support.harness.logs import recorded_logs

CANARY = "T0KEN-of-the-canary"
PLACES = (
    f"https://hooks.example.com/services/{CANARY}",
    f"https://hooks.example.com?key={CANARY}",
    f"https://hooks.example.com/#{CANARY}",
    f"https://{CANARY}@hooks.example.com/",
    f"https://me:{CANARY}@hooks.example.com:8443/x",
    f"redis://:{CANARY}@cache/0",
    f"ftp://hooks.example.com/{CANARY}",
)


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        *zip(
            PLACES,
            (
                *("https://hooks.example.com/…",) * 3,
                "https://hooks.example.com",
                "https://hooks.example.com:8443/…",
                "redis://cache/…",
                "ftp://hooks.example.com/…",
            ),
            strict=True,
        ),
        ("http://[::1]:8000/", "http://[::1]:8000"),
        (f"https://h/ x{CANARY}", "https://h/…"),
        # A password with a sign that ends the host: which part of it the host is, is not known.
        (f"redis://:{CANARY}/of@cache/0", "redis://…/…"),
        (f"amqp://me:{CANARY}#of@cache", "amqp://…/…"),
        (f"no address {CANARY}", "(no address)"),
        (f"://{CANARY}", "(no address)"),
    ],
)
@proves("security.bare-addresses")
def test_an_address_is_shown_by_its_scheme_and_host(address: str, shown: str) -> None:
    assert bare_address(address) == shown


def test_addresses_in_a_text_are_shown_bare_and_the_rest_stays() -> None:
    text = "GET 'https://a.example/x?y' then http://b.example:81/ and a/b, 12:30, s3://bucket/key."
    assert bare_addresses(text) == "GET 'https://a.example/…' then http://b.example:81 and a/b, 12:30, s3://bucket/…"
    assert bare_addresses(f"to redis://:{CANARY}/of@cache/0 now") == "to redis://…/… now"
    assert bare_addresses("no address, and :// is none") == "no address, and :// is none"


@pytest.fixture
def written() -> Iterator[io.StringIO]:
    """What the process logs, in the form of production."""
    with recorded_logs(log_level="info") as stream:
        yield stream


@pytest.mark.parametrize("address", PLACES)
@proves("security.bare-addresses")
def test_no_log_line_has_more_of_an_address(written: io.StringIO, address: str) -> None:
    log = structlog.get_logger("nova_workers.any")
    log.warning(f"called {address}", url=address, nested={"urls": [address]}, other=OSError(address))
    try:
        raise ValueError(f"{address!r} is wrong")
    except ValueError:
        log.exception("it.failed")
        logging.getLogger("a_package").exception("failed at %s", address)
    lines = written.getvalue()
    assert lines.count("\n") == 3
    assert CANARY not in lines
    assert "://hooks.example.com" in lines or "://cache" in lines


@pytest.mark.parametrize("address", PLACES)
@proves("security.bare-addresses")
async def test_no_failed_request_names_more_of_its_address(address: str) -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError(f"no host {host}")

    async def inside(host: str, port: int) -> list[str]:
        return ["10.0.0.1"]

    for resolver in (nowhere, inside):
        with pytest.raises(OutboundFailed) as failed:
            await Outbound(OutboundRules(), resolver=resolver).request("POST", address)
        assert CANARY not in failed.value.message
    for wrong in (f"{address}\x00", f"http://[{CANARY}/"):
        with pytest.raises(OutboundFailed) as failed:
            check_address(wrong, OutboundRules())
        assert CANARY not in failed.value.message, wrong
