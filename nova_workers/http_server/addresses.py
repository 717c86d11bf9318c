"""Clients' addresses, as limits count them."""

from collections.abc import Iterable
from functools import lru_cache
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from starlette.types import Scope

__all__ = ["TrustedProxies", "address_group", "client_address"]

_IPV6_PREFIX = 64
"""What one client has of IPv6: a limit for each of its 2^64 addresses would be none."""
_MAX_TEXT_CHARS = 64


def client_address(scope: Scope) -> str | None:
    """Return where a request came from, for records; None for a Unix socket. A proxy may send any text: it is cut."""
    client = scope.get("client")
    return None if client is None else client[0][:_MAX_TEXT_CHARS]


@lru_cache(maxsize=4096)
def address_group(host: str) -> str:
    """Return what limits count together: an IPv4 address, or a network of IPv6.

    A host that is no address (a proxy may send any text) counts as itself.
    """
    address = _parsed(host)
    if isinstance(address, IPv6Address):
        return str(ip_network((address, _IPV6_PREFIX), strict=False))
    return host[:_MAX_TEXT_CHARS] if address is None else str(address)


class TrustedProxies:
    """The proxies whose X-Forwarded-For is believed, and which carry the connections of many clients."""

    def __init__(self, addresses: Iterable[str]) -> None:
        """Take addresses and networks.

        Raises:
            ValueError: One is neither.
        """
        self._networks = tuple(ip_network(address) for address in addresses)

    def __contains__(self, host: str) -> bool:
        address = _parsed(host)
        return address is not None and any(_is_in(address, network) for network in self._networks)


def _is_in(address: IPv4Address | IPv6Address, network: IPv4Network | IPv6Network) -> bool:
    return address.version == network.version and address in network


def _parsed(host: str) -> IPv4Address | IPv6Address | None:
    """Return an address; one of IPv4 that is written as IPv6 as what it is."""
    try:
        address = ip_address(host)
    except ValueError:
        return None
    return (address.ipv4_mapped or address) if isinstance(address, IPv6Address) else address
