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


def test_a_claim_leaves_the_port_itself_to_the_server() -> None:
    ports = Ports()
    port = ports.claim_any(LOOPBACK)

    socket.create_server((LOOPBACK, port)).close()
    ports.release()
