"""The TLS of connections to the API."""

from __future__ import annotations

import ssl
from functools import cache

import httpx2


def tls_context(base_url: str) -> ssl.SSLContext:
    """Return the context that checks the certificate of a server.

    Making one that knows all authorities takes 25 ms. All clients share it, and an ``http`` address gets one that
    knows none: it would accept no certificate.
    """
    return _trusting_none() if base_url.startswith("http:") else _trusting_authorities()


@cache
def _trusting_none() -> ssl.SSLContext:
    return ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@cache
def _trusting_authorities() -> ssl.SSLContext:
    return httpx2.create_ssl_context()
