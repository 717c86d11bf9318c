"""Who is signed in: an encrypted cookie with the API key, and one-time logins.

The server stores no session. The cookie is a Fernet token (AES-128-CBC and HMAC-SHA256, with a time), which only the
holder of the console's secret can read or make.
"""

import base64
import hmac
import os
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import orjson
from cryptography.fernet import Fernet, InvalidToken

from nova_workers.base.clock import Clock
from nova_workers.base.config import ConsoleSettings
from nova_workers.base.errors import ConfigurationError

SECRET_FILE = "console.key"  # noqa: S105 - the name of a file
"""Under NOVA_HOME: the secret, if the settings have none."""

LOGIN_LINK_S = 900
"""How long a one-time login can be used."""

_NONCE_BYTES, _TIME_BYTES, _MAC_BYTES = 12, 6, 18


@dataclass(frozen=True, slots=True)
class Session:
    """A signed-in person: an API key of theirs, and their tenant as the API named it at the sign-in."""

    api_key: str
    tenant_id: str
    tenant_name: str
    id: str | None = None
    """Of the session at the API, which ends it everywhere; None where an API of the release before made none."""
    scopes: Sequence[str] | None = None
    """Of the key, which never change; None in a cookie of the release before."""


class Sessions:
    """Writes and reads cookies."""

    def __init__(self, secret: str, *, lifetime_s: float) -> None:
        self._fernet = Fernet(base64.urlsafe_b64encode(_derived(secret, b"cookies")))
        self.lifetime_s = int(lifetime_s)

    def seal(self, session: Session) -> str:
        """Return the cookie's value."""
        return self._fernet.encrypt(
            orjson.dumps([session.api_key, session.tenant_id, session.tenant_name, session.id, session.scopes])
        ).decode()

    def open(self, value: str) -> Session | None:
        """Return the session of a cookie; None if it is expired, damaged or of another secret."""
        try:
            return Session(*orjson.loads(self._fernet.decrypt(value, ttl=self.lifetime_s)))
        except (InvalidToken, ValueError, TypeError):
            return None

    def seal_text(self, text: str) -> str:
        """Return a cookie's value for a text that only this console can read and make."""
        return self._fernet.encrypt(text.encode()).decode()

    def open_text(self, value: str, *, lifetime_s: int) -> str | None:
        """Return the text of such a cookie; None if it is older, damaged or of another secret."""
        try:
            return self._fernet.decrypt(value, ttl=lifetime_s).decode()
        except (InvalidToken, ValueError):
            return None


class LoginLinks:
    """One-time logins: signed, short-lived tokens, each accepted once by all console processes of a home.

    Using a token creates a file of its name, which succeeds only once, also after a restart of the console.
    """

    def __init__(self, secret: str, home: Path, clock: Clock) -> None:
        self._key = _derived(secret, b"login links")
        self._used = home / "console-logins"
        self._clock = clock

    def make(self) -> str:
        """Return a new token."""
        expires = int(self._clock.now().timestamp()) + LOGIN_LINK_S
        claim = secrets.token_bytes(_NONCE_BYTES) + expires.to_bytes(_TIME_BYTES, "big")
        return base64.urlsafe_b64encode(claim + self._mac(claim)).decode()

    def use(self, token: str) -> bool:
        """Return whether a token is valid and unused, and mark it as used."""
        try:
            sealed = base64.urlsafe_b64decode(token.encode())
        except ValueError:
            return False
        claim, mac = sealed[:-_MAC_BYTES], sealed[-_MAC_BYTES:]
        if not hmac.compare_digest(mac, self._mac(claim)) or len(claim) != _NONCE_BYTES + _TIME_BYTES:
            return False
        if int.from_bytes(claim[_NONCE_BYTES:], "big") < self._clock.now().timestamp():
            return False
        self._used.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._remove_expired()
        try:
            (self._used / claim.hex()).touch(mode=0o600, exist_ok=False)
        except FileExistsError:
            return False
        return True

    def _mac(self, claim: bytes) -> bytes:
        return hmac.digest(self._key, claim, "sha256")[:_MAC_BYTES]

    def _remove_expired(self) -> None:
        for mark in self._used.iterdir():
            if mark.stat().st_mtime < time.time() - 2 * LOGIN_LINK_S:
                mark.unlink(missing_ok=True)


def read_secret(settings: ConsoleSettings, home: Path) -> str:
    """Return the console's secret: that of the settings, else the one of the home's file, which is made if missing.

    Raises:
        ConfigurationError: The file cannot be read or made.
    """
    if settings.secret is not None:
        return settings.secret.get_secret_value()
    path = home / SECRET_FILE
    try:
        home.mkdir(parents=True, exist_ok=True)
        draft = home / f".{SECRET_FILE}.{os.getpid()}"
        draft.touch(mode=0o600)
        draft.write_text(secrets.token_urlsafe(32), encoding="ascii")
        try:
            # A link never replaces: of two processes that start at once, both read the first one's secret.
            os.link(draft, path)
        except FileExistsError:
            pass
        finally:
            draft.unlink()
        return path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(
            f"{path}, the console's secret, cannot be read or made ({error}). Give one with NOVA_CONSOLE__SECRET."
        ) from error


def _derived(secret: str, purpose: bytes) -> bytes:
    """Return a key for one purpose, so that a token of one kind is never valid as another."""
    return hmac.digest(sha256(secret.encode()).digest(), b"nova console: " + purpose, "sha256")
