"""The URL of Redis, as Celery gets it."""

from __future__ import annotations

import ssl

import pytest

from nova_workers.broker.celery_app import build_celery


@pytest.mark.parametrize(
    ("query", "checks"),
    [
        ("", ssl.CERT_REQUIRED),
        ("?ssl_cert_reqs=required", ssl.CERT_REQUIRED),
        # Only where a person asks for it.
        ("?ssl_cert_reqs=none", ssl.CERT_NONE),
    ],
)
def test_celery_checks_the_certificate_of_redis(query: str, checks: ssl.VerifyMode) -> None:
    connection = build_celery(f"rediss://:secret@redis.example.org:6380/3{query}", fail_fast=True).connection()
    assert connection.ssl == {"ssl_cert_reqs": checks}
    assert (connection.hostname, connection.port, connection.virtual_host) == ("redis.example.org", 6380, "3")


def test_celery_speaks_no_tls_where_the_url_has_none() -> None:
    assert not build_celery("redis://redis.example.org/3", fail_fast=True).connection().ssl
