"""What the clients do before they send a request."""

from __future__ import annotations

import inspect
import ssl

from nova_workers.client import NovaClient, SyncNovaClient
from nova_workers.client.tls import tls_context


def test_a_group_of_calls_is_made_once_for_each_key() -> None:
    for client in (NovaClient("http://127.0.0.1:1", "nova_one"), SyncNovaClient("http://127.0.0.1:1", "nova_one")):
        other = client.with_key("nova_other")
        assert type(client.runs).__module__.startswith(type(client).__module__.removesuffix("client"))
        assert client.runs is client.runs
        assert other.runs is not client.runs


def test_programs_that_inspect_a_client_see_its_groups_without_a_fleet() -> None:
    for client in (NovaClient, SyncNovaClient):
        assert "runs" in {name for name, _ in inspect.getmembers(client)}


def test_certificates_of_servers_are_checked() -> None:
    for url in ("https://nova.example.com", "http://127.0.0.1:8700"):
        context = tls_context(url)
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname
        assert tls_context(url) is context
    assert tls_context("http://127.0.0.1:8700").cert_store_stats()["x509"] == 0
