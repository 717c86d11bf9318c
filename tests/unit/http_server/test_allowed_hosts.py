"""Which Host headers a server answers to."""

from __future__ import annotations

import pytest

from nova_workers.base.http_server.allowed_hosts import AllowedHosts

_HOSTS = AllowedHosts(["Nova.example.com", "*.internal.example"])


@pytest.mark.parametrize(
    "host",
    [
        *("", "localhost", "LOCALHOST:8700", "a.localhost", "localhost."),
        *("127.0.0.1", "127.0.0.1:8700", "203.0.113.7:80", "[::1]", "[::1]:8700", "[2001:db8::1]:80"),
        *("nova.example.com", "NOVA.example.com.:443", "a.internal.example", "a.b.internal.example:1"),
    ],
)
def test_own_names_and_addresses_are_answered(host: str) -> None:
    assert host in _HOSTS


@pytest.mark.parametrize(
    "host",
    [
        *("rebound.example", "rebound.example:8700", "localhost.rebound.example", "127.0.0.1.rebound.example"),
        *("nova.example.com.rebound.example", "xnova.example.com", "internal.example", "localhost@rebound.example"),
        *("127.0.0.1:80:rebound.example", "[::1]rebound.example", "[rebound.example]", "rebound.example#localhost"),
    ],
)
def test_other_names_are_refused(host: str) -> None:
    assert host not in _HOSTS
    assert host in AllowedHosts(["*"])
