"""Checks ID tokens of a provider of single sign-on (OpenID Connect Core 1.0, section 3.1.3.7).

Imported on demand: PyJWT imports the whole of `cryptography`.
"""

from __future__ import annotations

import asyncio
import hmac
import time
from collections.abc import Collection, Mapping
from typing import Any, Final

import jwt
import structlog

from nova_workers.base.config import OidcSettings
from nova_workers.base.errors import ConfigurationError, Unauthenticated, Unavailable
from nova_workers.base.oidc import Monotonic, OidcProvider
from nova_workers.domain.keys.rules.people import Identity

_ALGORITHMS: Final = frozenset(
    {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}
)
"""Signatures with a private key. None is made with a secret that the API would share."""
_LEEWAY_S: Final = 60
_MAX_AGE_S: Final = 600
"""A token signs in within this time of its issue: it is no credential to keep."""
_MAX_CHARS: Final = 16_384
_MAX_TEXT_CHARS: Final = 300
_MAX_GROUPS: Final = 1_000
_FRESH_S: Final = 3_600.0
_STALE_S: Final = 86_400.0
"""Keys that were read so long ago are no longer believed while the provider does not answer."""
_LEAST_PAUSE_S: Final = 30.0
"""The least time between two reads that tokens with unknown keys cause: anyone may send such tokens."""

_log = structlog.get_logger(__name__)


class ProviderKeys:
    """The public keys of a provider, by their ids. They are read again hourly, and where a token names another."""

    def __init__(self, provider: OidcProvider, *, monotonic_s: Monotonic = time.monotonic) -> None:
        self._provider = provider
        self._monotonic_s = monotonic_s
        self._keys: Mapping[str | None, jwt.PyJWK] = {}
        self._read_at_s: float | None = None
        self._tried_at_s: float | None = None
        self._reading = asyncio.Lock()

    async def find(self, key_id: str | None) -> jwt.PyJWK | None:
        """Return the key with an id; without an id the only one. None if the provider has none such.

        Raises:
            Unavailable: The provider's keys cannot be read.
        """
        async with self._reading:
            if self._read_at_s is None:
                await self._read()
            elif self._may_try() and (self._age_s() > _FRESH_S or self._known(key_id) is None):
                await self._read_again()
            return self._known(key_id)

    def _known(self, key_id: str | None) -> jwt.PyJWK | None:
        if key_id is None:
            return next(iter(self._keys.values())) if len(self._keys) == 1 else None
        return self._keys.get(key_id)

    def _age_s(self) -> float:
        return 0.0 if self._read_at_s is None else self._monotonic_s() - self._read_at_s

    def _may_try(self) -> bool:
        return self._tried_at_s is None or self._monotonic_s() - self._tried_at_s >= _LEAST_PAUSE_S

    async def _read_again(self) -> None:
        try:
            await self._read()
        except Unavailable as error:
            if self._age_s() > _STALE_S:
                self._keys, self._read_at_s = {}, None
                raise
            _log.warning("oidc.keys_not_read", why=str(error))

    async def _read(self) -> None:
        self._tried_at_s = self._monotonic_s()
        document = await self._provider.fetch((await self._provider.metadata()).jwks_uri)
        entries = document.get("keys") if isinstance(document, dict) else None
        found: dict[str | None, jwt.PyJWK] = {}
        for entry in entries if isinstance(entries, list) else ():
            if isinstance(entry, dict) and entry.get("use", "sig") == "sig":
                try:
                    found[entry.get("kid")] = jwt.PyJWK(entry)
                except jwt.PyJWTError:
                    # Of a kind that this release does not know: another one may be meant.
                    continue
        self._keys, self._read_at_s = found, self._monotonic_s()


class IdTokens:
    """Checks tokens of one provider for some of its clients."""

    def __init__(
        self, provider: OidcProvider, keys: ProviderKeys, *, audiences: Collection[str], groups_claim: str
    ) -> None:
        self._provider = provider
        self._keys = keys
        self._audiences = frozenset(audiences)
        self._groups_claim = groups_claim

    async def verify(self, token: str, nonce: str | None) -> Identity:
        """Return whose token it is.

        Args:
            nonce: The one of the request that it answers; None where the request had none.

        Raises:
            Unauthenticated: It is not the provider's, not for our clients, has expired, or is of another request.
            Unavailable: The provider's keys cannot be read.
        """
        if len(token) > _MAX_CHARS:
            raise _refused("it is too long")
        try:
            head = jwt.get_unverified_header(token)
            algorithm, key_id = head.get("alg"), head.get("kid")
            if algorithm not in _ALGORITHMS or not (key_id is None or isinstance(key_id, str)):
                raise _refused(f"its algorithm {str(algorithm)[:20]!r} is not accepted")
            key = await self._keys.find(key_id)
            if key is None:
                raise _refused("the provider has no such key")
            claims = self._claims(token, key, str(algorithm))
        except jwt.PyJWTError as error:
            raise _refused(f"{type(error).__name__}") from error
        self._check(claims, nonce)
        return self._identity(claims)

    def _claims(self, token: str, key: jwt.PyJWK, algorithm: str) -> dict[str, Any]:
        return jwt.decode(
            token,
            key,
            algorithms=[algorithm],
            audience=self._audiences,
            issuer=self._provider.issuer,
            leeway=_LEEWAY_S,
            options={"require": ["iss", "sub", "aud", "exp", "iat"]},
        )

    def _check(self, claims: Mapping[str, Any], nonce: str | None) -> None:
        audience = claims["aud"]
        party = claims.get("azp")
        if isinstance(audience, list) and len(audience) > 1 and party is None:
            raise _refused("it is for several clients and does not name the one that asked")
        if party is not None and party not in self._audiences:
            raise _refused("another client asked for it")
        if time.time() - float(claims["iat"]) > _MAX_AGE_S:
            raise _refused("it was issued too long ago")
        named = claims.get("nonce")
        if nonce is None:
            if named is not None:
                raise _refused("it answers a request with a nonce, which is missing")
        elif not (isinstance(named, str) and hmac.compare_digest(named.encode(), nonce.encode())):
            raise _refused("its nonce is of another request")

    def _identity(self, claims: Mapping[str, Any]) -> Identity:
        subject = claims["sub"]
        if not (isinstance(subject, str) and 0 < len(subject) <= _MAX_TEXT_CHARS):
            raise _refused("its subject is no text")
        groups = claims.get(self._groups_claim, ())
        if isinstance(groups, str):
            groups = (groups,)
        named = [group for group in groups if isinstance(group, str)] if isinstance(groups, list | tuple) else []
        return Identity(
            issuer=self._provider.issuer,
            subject=subject,
            email=_text(claims.get("email")),
            # Some providers write it as a text.
            is_verified=claims.get("email_verified") in (True, "true"),
            name=_text(claims.get("name")) or _text(claims.get("preferred_username")),
            groups=frozenset(named[:_MAX_GROUPS]),
        )


def build_id_tokens(settings: OidcSettings) -> IdTokens:
    """Return the checks for the tokens of the settings' provider.

    Raises:
        ConfigurationError: The settings name no provider.
    """
    if settings.issuer is None or settings.client_id is None:
        raise ConfigurationError("There is no provider: NOVA_OIDC__ISSUER and NOVA_OIDC__CLIENT_ID are not set.")
    provider = OidcProvider(settings.issuer)
    device = () if settings.device_client_id is None else (settings.device_client_id,)
    audiences = (settings.client_id, *device, *settings.audiences)
    return IdTokens(provider, ProviderKeys(provider), audiences=audiences, groups_claim=settings.groups_claim)


def _text(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    shown = "".join(character for character in value if character.isprintable())
    return shown[:_MAX_TEXT_CHARS] or None


def _refused(why: str) -> Unauthenticated:
    return Unauthenticated(f"The ID token is not accepted: {why}. Sign in again.")
