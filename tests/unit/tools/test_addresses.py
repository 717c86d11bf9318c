"""Which addresses are public."""

from collections.abc import Callable
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nova_workers.base.outbound.addresses import is_public, parse_address
from tests.requirements import proves

PRIVATE_4 = (
    "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.100.100.200 127.0.0.1 127.255.255.254 168.63.129.16 169.254.169.254 "
    "172.16.0.1 172.31.255.255 192.0.0.192 192.0.2.1 192.88.99.1 192.168.0.1 198.18.0.1 198.19.255.255 "
    "198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.255 240.0.0.1 255.255.255.255"
).split()
PRIVATE_6 = (
    ":: ::1 ::7f00:1 fe80::1 fec0::1 fc00::1 fd00:ec2::254 ff02::1 100::1 2001:db8::1 2001::1 2001:10::1 3fff::1 "
    "5f00::1 64:ff9b:1::a00:1 4000::1 1000::1"
).split()
PUBLIC = (
    "1.1.1.1 8.8.8.8 93.184.216.34 172.15.0.1 172.32.0.1 2606:4700::1111 2a00:1450:4001::1 64:ff9b::808:808".split()
)

NAT64 = IPv6Network("64:ff9b::/96")

addresses_4 = st.integers(0, 2**32 - 1).map(IPv4Address) | st.sampled_from(PRIVATE_4).map(IPv4Address)
addresses_6 = st.integers(0, 2**128 - 1).map(IPv6Address)


@pytest.mark.parametrize("text", PRIVATE_4 + PRIVATE_6)
@proves("security.addresses")
def test_private_and_reserved_addresses_are_not_public(text: str) -> None:
    assert not is_public(ip_address(text))


@pytest.mark.parametrize("text", PUBLIC)
def test_internet_addresses_are_public(text: str) -> None:
    assert is_public(ip_address(text))


@given(addresses_4)
def test_the_standard_library_knows_no_private_address_that_we_let_through(address: IPv4Address) -> None:
    if is_public(address):
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_reserved


@given(addresses_6)
def test_the_standard_library_knows_no_private_ipv6_address_that_we_let_through(address: IPv6Address) -> None:
    if is_public(address) and address not in NAT64:
        assert address.is_global
        assert not address.is_multicast
        assert not address.is_site_local


WRAPPERS: dict[str, Callable[[IPv4Address], str]] = {
    "mapped": "::ffff:{}".format,
    "compatible": "::{}".format,
    "translated": "::ffff:0:{}".format,
    "6to4": lambda inner: str(IPv6Address((0x2002 << 112) | (int(inner) << 80) | 1)),
    "teredo": lambda inner: str(IPv6Address((0x20010000 << 96) | (int(inner) ^ 0xFFFFFFFF))),
    "teredo server": lambda inner: str(IPv6Address((0x20010000 << 96) | (int(inner) << 64))),
    "NAT64": "64:ff9b::{}".format,
    "local NAT64": "64:ff9b:1::{}".format,
    "ISATAP": "2606:4700::5efe:{}".format,
    "global ISATAP": "2606:4700::200:5efe:{}".format,
}


@pytest.mark.parametrize("wrapper", WRAPPERS)
@given(address=st.sampled_from(PRIVATE_4).map(IPv4Address))
@proves("security.addresses")
def test_no_wrapper_makes_a_private_address_public(wrapper: str, address: IPv4Address) -> None:
    wrapped = parse_address(WRAPPERS[wrapper](address))
    assert wrapped is not None
    assert not is_public(wrapped)


@pytest.mark.parametrize("text", ["fe80::1%eth0", "::1%0", "127.1", "0x7f000001", "2130706433", "0177.0.0.1", "", "x"])
def test_only_the_canonical_form_is_an_address(text: str) -> None:
    assert parse_address(text) is None
