"""Requests to external servers, at addresses that a model or a user chose.

The guard is in the transport, under the client: every request passes it, also redirects. It
resolves the name once, refuses unless *every* address is public, and connects to one of those that it checked. So a
name cannot answer the check with one address and the connection with another. The name stays in the Host header and in
TLS, where the certificate is verified against it.
"""

import asyncio
import re
import socket
import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import httpx2

from nova_workers.base.errors import OutboundFailed
from nova_workers.base.observability.addresses import bare_address, bare_addresses
from nova_workers.base.outbound.addresses import Address, is_public, parse_address
from nova_workers.base.outbound.bodies import read_body
from nova_workers.base.outbound.rules import OutboundRules

Resolver = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host and port to addresses. Raises `OSError` for a name that has none."""

_PORTS = {"http": 80, "https": 443}
_NUMERIC = re.compile(r"^(?:0x[0-9a-f]*|\d+)$")
_NOT_PUBLIC = "it is not an address of the public internet"
_MAX_ADDRESSES = 4
"""How many of a server's addresses are tried. Each may take the whole time to connect."""


@dataclass(frozen=True, slots=True)
class OutboundResponse:
    """What a server answered.

    Attributes:
        url: Where it was in the end.
        headers: With names in lower case.
        body: Unpacked.
        truncated: Whether the body was longer than the bounds let through.
    """

    url: str
    status: int
    headers: Mapping[str, str]
    body: bytes
    truncated: bool = False


def check_address(url: str, rules: OutboundRules) -> None:
    """Refuse a URL that is never reached, whatever the name in it resolves to.

    Raises:
        OutboundFailed: It is refused; the message says why.
    """
    try:
        parsed = httpx2.URL(url)
    except httpx2.InvalidURL as error:
        raise _no_address(url, error) from error
    host, admitted = _checked_host(rules, parsed)
    literal = parse_address(host)
    own = host == "localhost" or host.endswith(".localhost") or (literal is not None and not is_public(literal))
    if own and not admitted:
        raise _refused(parsed, _NOT_PUBLIC)


async def resolve(host: str, port: int) -> Sequence[str]:
    """Return the addresses of a name as the system knows them."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))


class Outbound:
    """Sends requests under the guard. Keeps no connection, no cookie and no credential between them."""

    def __init__(
        self, rules: OutboundRules, *, resolver: Resolver = resolve, verify: ssl.SSLContext | None = None
    ) -> None:
        """Take the rules.

        Args:
            rules: What may be reached.
            resolver: Turns names into addresses.
            verify: How servers' certificates are verified; None takes the usual authorities, with the first request.
        """
        self._rules = rules
        self._resolver = resolver
        self._ssl = verify

    def transport(self) -> httpx2.AsyncBaseTransport:
        """Return the transport that carries requests under the guard, for a client that speaks a protocol of its own.

        Of the rules only those on addresses hold then: the client bounds times and sizes, and follows no redirect.
        The first call may block for 40 ms, to read the certificates of all authorities.
        """
        if self._ssl is None:
            self._ssl = httpx2.create_ssl_context(trust_env=False)
        return _GuardedTransport(self._rules, self._resolver, self._ssl)

    async def request(
        self,
        method: str,
        url: str,
        *,
        headers: Mapping[str, str] | None = None,
        content: bytes | None = None,
        follow: bool = True,
    ) -> OutboundResponse:
        """Send a request and return the answer, whatever its status.

        Args:
            method: The HTTP method.
            url: An http or https address.
            headers: Sent as they are; when a redirect leads to another host, Authorization is left out.
            content: The body.
            follow: Whether redirects are followed. A signed request should not be.

        Raises:
            OutboundFailed: It was refused, or the server did not answer properly in time.
        """
        rules = self._rules
        try:
            async with asyncio.timeout(rules.timeout_s), self._client() as client:
                request = client.build_request(method, url, headers=headers, content=content)
                return await self._exchange(client, request, rules.max_redirects if follow else 0, follow=follow)
        except (TimeoutError, httpx2.TimeoutException) as error:
            raise OutboundFailed(
                f"{bare_address(url)!r} did not answer within {rules.timeout_s:g} s.", refused=False
            ) from error
        except (httpx2.InvalidURL, UnicodeError, ValueError) as error:
            raise _no_address(url, error) from error
        except httpx2.HTTPError as error:
            why = bare_addresses(str(error)) or type(error).__name__
            raise OutboundFailed(f"{bare_address(url)!r} cannot be fetched: {why}", refused=False) from error

    @asynccontextmanager
    async def _client(self) -> AsyncGenerator[httpx2.AsyncClient]:
        # In a thread where it would block.
        transport = self.transport() if self._ssl else await asyncio.to_thread(self.transport)
        headers = {"User-Agent": self._rules.user_agent, "Accept-Encoding": "gzip, deflate"}
        timeout = httpx2.Timeout(self._rules.timeout_s, connect=self._rules.connect_timeout_s)
        async with httpx2.AsyncClient(
            transport=transport, headers=headers, timeout=timeout, trust_env=False, follow_redirects=False
        ) as client:
            yield client

    async def _exchange(
        self, client: httpx2.AsyncClient, request: httpx2.Request, redirects: int, *, follow: bool
    ) -> OutboundResponse:
        while True:
            # Not by the client: it would read the whole body of every redirect, and unpack it.
            response = await client.send(request, stream=True)
            try:
                if not follow or not response.has_redirect_location:
                    body, truncated = await read_body(response, self._rules.max_bytes)
                    headers = {name.lower(): value for name, value in response.headers.items()}
                    return OutboundResponse(str(response.url), response.status_code, headers, body, truncated)
                if response.next_request is None:
                    raise OutboundFailed(
                        f"{bare_address(str(request.url))!r} redirects to what is no address.", refused=False
                    )
                request = response.next_request
            finally:
                await response.aclose()
            if redirects == 0:
                raise OutboundFailed(
                    f"More than {self._rules.max_redirects} redirects; the last one led to "
                    f"{bare_address(str(request.url))!r}.",
                    refused=False,
                )
            redirects -= 1


class _GuardedTransport(httpx2.AsyncBaseTransport):
    """Checks where a request goes, and sends it to the address that was checked."""

    def __init__(self, rules: OutboundRules, resolver: Resolver, context: ssl.SSLContext) -> None:
        self._rules = rules
        self._resolver = resolver
        self._inner = httpx2.AsyncHTTPTransport(verify=context, trust_env=False)

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        addresses = await permitted_addresses(request.url, self._rules, self._resolver)
        for at, address in enumerate(addresses, 1):
            try:
                return await self._inner.handle_async_request(_pinned(request, address))
            except (httpx2.ConnectError, httpx2.ConnectTimeout):
                # Nothing was sent yet: the next address may be one that this machine has a route to.
                if at == len(addresses):
                    raise
        raise AssertionError("unreachable: there is at least one address")

    async def aclose(self) -> None:
        await self._inner.aclose()


async def permitted_addresses(url: httpx2.URL, rules: OutboundRules, resolver: Resolver) -> Sequence[Address]:
    """Return the addresses of a URL's host to connect to, after the guard.

    Raises:
        OutboundFailed: It is refused, or there is no such host; the message says which host, and why.
    """
    host, admitted = _checked_host(rules, url)
    addresses = await _addresses(url, host, url.port or _PORTS[url.scheme], resolver)
    if not admitted and not all(is_public(address) for address in addresses):
        # Not which address: that would tell a model how the inside of the network looks.
        raise _refused(url, _NOT_PUBLIC)
    return addresses[:_MAX_ADDRESSES]


async def _addresses(url: httpx2.URL, host: str, port: int, resolver: Resolver) -> Sequence[Address]:
    literal = parse_address(host)
    if literal is not None:
        return (literal,)
    try:
        found = await resolver(host, port)
    except (OSError, UnicodeError) as error:
        raise OutboundFailed(
            f"{bare_address(str(url))!r} cannot be fetched: there is no host {host!r}.", refused=False
        ) from error
    addresses = [parse_address(text) for text in found]
    if not addresses or None in addresses:
        raise _refused(url, _NOT_PUBLIC)
    return [address for address in addresses if address is not None]


def _checked_host(rules: OutboundRules, url: httpx2.URL) -> tuple[str, bool]:
    """Return the host of a URL whose form and port are in order, and whether the operator admits it as it is."""
    if url.scheme not in _PORTS:
        raise _refused(url, f"only http and https are fetched, not {url.scheme!r}")
    if url.userinfo:
        raise _refused(url, "an address with a user name or password is not fetched")
    host, port = url.raw_host.decode("ascii").lower(), url.port or _PORTS[url.scheme]
    admitted = rules.admits(host, port)
    if not admitted:
        _check_form(url, host)
        if port not in rules.ports:
            raise _refused(url, f"port {port} is not one of {', '.join(map(str, rules.ports))}")
    return host, admitted


def _check_form(url: httpx2.URL, host: str) -> None:
    """Refuse hosts that mean different things to different readers."""
    if not host:
        raise _refused(url, "it has no host")
    if "%" in host:
        raise _refused(url, "an address with a zone is not fetched")
    # "2130706433", "0x7f.1" and "0177.0.0.1" are addresses to some and names to others.
    if parse_address(host) is None and _NUMERIC.match(host.rstrip(".").rsplit(".", 1)[-1]):
        raise _refused(url, "it has a number for a host; write an IPv4 address as four decimal numbers")


def _pinned(request: httpx2.Request, address: Address) -> httpx2.Request:
    host = request.url.raw_host.decode("ascii")
    return httpx2.Request(
        request.method,
        request.url.copy_with(host=str(address)),
        headers=request.headers,
        stream=request.stream,
        extensions={**request.extensions, "sni_hostname": host},
    )


def _refused(url: httpx2.URL, why: str) -> OutboundFailed:
    return OutboundFailed(f"{bare_address(str(url))!r} is not fetched: {why}.", refused=True)


def _no_address(url: str, error: Exception) -> OutboundFailed:
    # Whatever is wrong with it may be in the part that is not shown.
    return OutboundFailed(f"{bare_address(url)!r} is no address ({type(error).__name__}).", refused=True)
