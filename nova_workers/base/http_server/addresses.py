"""Clients' addresses, as limits count them, and as trusted proxies state them."""

import asyncio
import socket
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final

import structlog
from starlette.types import ASGIApp, Receive, Scope, Send

_IPV6_PREFIX = 64
"""What one client has of IPv6: a limit for each of its 2^64 addresses would be none."""
_MAX_TEXT_CHARS = 64
_RESOLVE_EVERY_S: Final = 10.0
"""The names are resolved this often, so the people of a new console may count as one address."""

_log = structlog.get_logger(__name__)


def client_address(scope: Scope) -> str | None:
    """Return where a request came from, for records; None for a Unix socket. A proxy may send any text: it is cut."""
    client = scope.get("client")
    return None if client is None else client[0][:_MAX_TEXT_CHARS]


@lru_cache(maxsize=4096)
def address_group(host: str) -> str:
    """Return the group that limits count as one: an IPv4 address, or a network of IPv6.

    A host that is no address (a proxy may send any text) counts as itself.
    """
    address = _parsed(host)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _IPV6_PREFIX), strict=False))
    return host[:_MAX_TEXT_CHARS] if address is None else str(address)


def is_in_networks(host: str | None, networks: Sequence[IPv4Network | IPv6Network]) -> bool:
    """Return whether a client's address is in one of the networks; what is no address is in none."""
    address = None if host is None else _parsed(host)
    return address is not None and any(_is_in(address, network) for network in networks)


class TrustedProxies:
    """The proxies whose X-Forwarded-For is believed, and which carry the connections of many clients.

    Names are those of services whose containers come and go, and are resolved again and again.
    """

    def __init__(self, proxies: Iterable[str]) -> None:
        """Take addresses, networks and names. Until `run`, no address belongs to a name."""
        networks: list[IPv4Network | IPv6Network] = []
        self._of_names: dict[str, frozenset[IPv4Address | IPv6Address]] = {}
        for proxy in proxies:
            try:
                networks.append(ip_network(proxy))
            except ValueError:
                self._of_names[proxy] = frozenset()
        self._networks = tuple(networks)

    def __bool__(self) -> bool:
        return bool(self._networks or self._of_names)

    def __contains__(self, host: str) -> bool:
        address = _parsed(host)
        return address is not None and (
            is_in_networks(host, self._networks) or any(address in addresses for addresses in self._of_names.values())
        )

    async def run(self) -> None:
        """Keep the addresses of names up to date until it is canceled. It returns at once if there are none."""
        while self._of_names:
            for name, known in self._of_names.items():
                self._of_names[name] = await _resolve(name, known)
            await asyncio.sleep(_RESOLVE_EVERY_S)

    def stated_client(self, host: str, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return the client of a request as its proxies state it.

        Each proxy appends the address that it sees to X-Forwarded-For, so it is read from the right: the first address
        that is no trusted proxy's. What stands left of it anyone can have written.

        Args:
            host: The other end of the connection.
            headers: Of the request.

        Returns:
            None if the other end is no trusted proxy, or states nothing.
        """
        if host not in self:
            return None
        lists = [value.decode("latin-1") for name, value in headers if name == b"x-forwarded-for"]
        stated = None
        for entry in reversed(",".join(lists).split(",")):
            if not (entry := _without_port(entry.strip())):
                break
            stated = entry
            if entry not in self:
                break
        return stated


class ForwardedClients:
    """ASGI middleware: gives requests from trusted proxies the client and the scheme that these state."""

    def __init__(self, app: ASGIApp, *, proxies: TrustedProxies) -> None:
        self._app = app
        self._proxies = proxies

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one connection."""
        peer = client_address(scope) if scope["type"] == "http" else None
        if peer is not None and peer in self._proxies:
            client = self._proxies.stated_client(peer, scope["headers"])
            if client is not None:
                scope["client"] = (client, 0)
            schemes = [value for name, value in scope["headers"] if name == b"x-forwarded-proto"]
            if schemes and schemes[-1] in {b"http", b"https"}:
                scope["scheme"] = schemes[-1].decode()
        await self._app(scope, receive, send)


def _without_port(entry: str) -> str:
    """Return an address without the port that some proxies append to it."""
    if entry.startswith("["):
        return entry[1:].partition("]")[0]
    return entry.partition(":")[0] if entry.count(":") == 1 else entry


async def _resolve(name: str, known: frozenset[IPv4Address | IPv6Address]) -> frozenset[IPv4Address | IPv6Address]:
    """Return the addresses of a name; those that are known if name servers do not answer, none if there is none."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        # The latter where it can be no name, as with an empty part; the other names are resolved all the same.
        _log.debug("proxies.not_resolved", name=name, error=str(error))
        return known if isinstance(error, OSError) and error.errno == socket.EAI_AGAIN else frozenset()
    return frozenset(address for *_, where in found if (address := _parsed(str(where[0]))) is not None)


def _is_in(address: IPv4Address | IPv6Address, network: IPv4Network | IPv6Network) -> bool:
    return address.version == network.version and address in network


@lru_cache(maxsize=4096)
def _parsed(host: str) -> IPv4Address | IPv6Address | None:
    """Return an address; one of IPv4 that is written as IPv6 as what it is."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
