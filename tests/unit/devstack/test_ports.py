"""Ports of a fleet: two that start at the same moment choose different ones."""

import socket
import sys

import pytest

from nova_workers.devstack.servers.ports import Ports

LOOPBACK = "127.0.0.1"


def test_a_port_with_a_server_is_refused() -> None:
    with socket.create_server((LOOPBACK, 0)) as server:
        assert not Ports().claim(LOOPBACK, server.getsockname()[1])


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has names that the kernel gives back")
def test_a_chosen_port_is_refused_to_other_fleets_before_its_server_listens() -> None:
    first, second = Ports(), Ports()
    port = first.claim_any(LOOPBACK)

    assert not second.claim(LOOPBACK, port)
    first.release()
    assert second.claim(LOOPBACK, port)
    second.release()


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux gives all of 127.0.0.0/8 to loopback")
def test_fleets_on_different_addresses_may_have_the_same_port() -> None:
    first, second = Ports(), Ports()
    port = first.claim_any(LOOPBACK)

    assert second.claim("127.0.0.2", port)
    first.release()
    second.release()


def test_a_claim_leaves_the_port_itself_to_the_server() -> None:
    ports = Ports()
    port = ports.claim_any(LOOPBACK)

    socket.create_server((LOOPBACK, port)).close()
    ports.release()
