"""The certificates of all authorities, read once a process: a client reads them when it is made, in 25 ms of CPU."""

from __future__ import annotations

import os
import ssl
from functools import cache

import httpcore2

_read_context = httpcore2.default_ssl_context


def share_authorities() -> None:
    """Give the clients of this process, and of those that are forked from it, one context. No test changes one."""
    httpcore2.default_ssl_context = _shared
    _shared()


def _shared(*, _trust_env: bool = True) -> ssl.SSLContext:
    # A command and a fleet have variables of their own.
    names = ("SSL_CERT_FILE", "SSL_CERT_DIR") if _trust_env else ()
    return _context(*[os.environ.get(name) for name in names])


@cache
def _context(*variables: str | None) -> ssl.SSLContext:
    return _read_context(_trust_env=bool(variables))
