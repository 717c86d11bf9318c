"""Which addresses belong to the public internet, not to a private network.

An address is refused unless it is known to be public: what is not on the list of what is let through stays out. The
registries are IANA's special-purpose address registries (RFC 6890) for IPv4 and IPv6.
"""

from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Final

Address = IPv4Address | IPv6Address

_NOT_PUBLIC_4: Final = tuple(
    IPv4Network(network)
    for network in (
        "0.0.0.0/8",  # this network
        "10.0.0.0/8",  # private
        "100.64.0.0/10",  # carrier-grade NAT; Alibaba's metadata is 100.100.100.200
        "127.0.0.0/8",  # loopback
        "168.63.129.16/32",  # Azure's host agent, in a range that is public otherwise
        "169.254.0.0/16",  # link-local; the other clouds' metadata is 169.254.169.254
        "172.16.0.0/12",  # private
        "192.0.0.0/24",  # protocol assignments; Oracle's metadata is 192.0.0.192
        "192.0.2.0/24",  # documentation
        "192.31.196.0/24",  # AS112
        "192.52.193.0/24",  # AMT
        "192.88.99.0/24",  # 6to4 relays
        "192.168.0.0/16",  # private
        "192.175.48.0/24",  # AS112
        "198.18.0.0/15",  # benchmarks
        "198.51.100.0/24",  # documentation
        "203.0.113.0/24",  # documentation
        "224.0.0.0/4",  # multicast
        "240.0.0.0/4",  # reserved, and broadcast
    )
)

_GLOBAL_UNICAST_6: Final = IPv6Network("2000::/3")
"""The only part of IPv6 that is routed to the public. Loopback, mapped and compatible IPv4, unique local, link-local,
site-local and multicast addresses are all outside."""

_NOT_PUBLIC_6: Final = tuple(
    IPv6Network(network)
    for network in (
        "2001::/23",  # protocol assignments: Teredo, benchmarks, ORCHID
        "2001:db8::/32",  # documentation
        "2002::/16",  # 6to4: an IPv4 address of any kind is inside
        "2620:4f:8000::/48",  # AS112
        "3fff::/20",  # documentation
    )
)

_NAT64: Final = IPv6Network("64:ff9b::/96")
"""A network without IPv4 gives every IPv4 server an address here, so it cannot be refused whole."""

_ISATAP: Final = (0x0000_5EFE, 0x0200_5EFE)
"""The third quarter of an address that carries an IPv4 address in its fourth, to be unwrapped on the way."""


def parse_address(text: str) -> Address | None:
    """Return the address that the text is in its usual form, or None. A zone makes it no address."""
    if "%" in text:
        return None
    try:
        return ip_address(text)
    except ValueError:
        return None


def is_public(address: Address) -> bool:
    """Return whether the address is one of the public internet, whatever it is wrapped in."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _NOT_PUBLIC_4)
    if address in _NAT64:
        return is_public(IPv4Address(int(address) & 0xFFFF_FFFF))
    if (int(address) >> 32) & 0xFFFF_FFFF in _ISATAP:
        return False
    return address in _GLOBAL_UNICAST_6 and not any(address in network for network in _NOT_PUBLIC_6)
