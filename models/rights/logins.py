"""The database user of API and workers: it changes rows, and never tables."""

from __future__ import annotations

import hashlib
import hmac
import os
from base64 import b64encode
from urllib.parse import unquote, urlsplit

import asyncpg

from .row_security import FLEET_ROLE, TENANT_ROLE

_ITERATIONS = 4_096
"""Postgres' own number."""

_EXISTS = "SELECT EXISTS (SELECT FROM pg_roles WHERE rolname = $1)"
_CREATE = "SELECT format('CREATE ROLE %I LOGIN PASSWORD %L', $1::text, $2::text)"
_GRANT = f"SELECT format('GRANT {FLEET_ROLE}, {TENANT_ROLE} TO %I', $1::text)"


async def ensure_login(owner_url: str, url: str) -> None:
    """Let the user of a URL change the rows of a migrated database. A missing user is made, with the URL's password.

    Idempotent. The password of a user that exists is not changed.

    Args:
        owner_url: Of the owner of the tables, who may make roles.
        url: Of API and workers.

    Raises:
        ValueError: `url` names no user or, for a new user, no password in ASCII.
    """
    parts = urlsplit(url)
    if not parts.username:
        raise ValueError("it names no user")
    user, password = unquote(parts.username), unquote(parts.password or "")
    connection = await asyncpg.connect(owner_url)
    try:
        if user == await connection.fetchval("SELECT current_user"):
            return
        if not await connection.fetchval(_EXISTS, user):
            if not password or not password.isascii():
                raise ValueError(f"it has no password in ASCII for the new user {user!r}")
            await connection.execute(await connection.fetchval(_CREATE, user, scram_verifier(password, os.urandom(16))))
        await connection.execute(await connection.fetchval(_GRANT, user))
    finally:
        await connection.close()


def scram_verifier(password: str, salt: bytes) -> str:
    """Return the form of a password that Postgres stores (RFC 5803), so that its log never has the password."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, _ITERATIONS)
    stored = hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()
    server = hmac.digest(salted, b"Server Key", "sha256")
    return f"SCRAM-SHA-256${_ITERATIONS}:{_text(salt)}${_text(stored)}:{_text(server)}"


def _text(data: bytes) -> str:
    return b64encode(data).decode()
