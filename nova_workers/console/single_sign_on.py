"""Signing in at a provider: the authorization code flow of OpenID Connect, with PKCE, a state and a nonce.

The console keeps nothing between the two requests: what it must remember is in an encrypted cookie of the browser. It
does not judge the ID token either: the API does, and answers with a key for the session.
"""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import astuple, dataclass
from hashlib import sha256
from typing import Final
from urllib.parse import quote_plus, urlencode, urlsplit

import orjson

from nova_workers.base.config import OidcSettings
from nova_workers.base.errors import Unauthenticated, Unavailable
from nova_workers.base.oidc import OidcProvider
from nova_workers.console.sessions import Sessions

CALLBACK: Final = "/login/sso/callback"
"""The path to which the provider sends people back. Its address is registered at the provider."""
ATTEMPT_COOKIE: Final = "nova_sign_in"
ATTEMPT_S: Final = 600
"""How long a person has at the provider."""

_RANDOM_BYTES: Final = 32
_SHOWN_CHARS: Final = 200
_OK: Final = 200


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the console remembers of a sign-in that began in a browser."""

    state: str
    nonce: str
    verifier: str
    back: str
    tenant_id: str | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A sign-in that the provider confirmed."""

    id_token: str
    nonce: str
    back: str
    tenant_id: str | None


class SingleSignOn:
    """The provider as the console uses it."""

    def __init__(self, settings: OidcSettings, sessions: Sessions) -> None:
        """Take the settings, which name a provider.

        Args:
            sessions: Seals the cookie of an attempt.
        """
        self.name = settings.name
        self._settings = settings
        self._sessions = sessions
        self._provider = OidcProvider(settings.issuer or "")

    async def begin(self, origin: str, back: str, tenant_id: str | None) -> tuple[str, str]:
        """Return the provider's address for a browser, and the value of the attempt's cookie.

        Args:
            origin: Scheme and host of the console in the browser.
            back: The page to show afterwards.
            tenant_id: The tenant that the person chose, if it has roles in several.

        Raises:
            Unavailable: The provider does not answer.
        """
        attempt = Attempt(state=_random(), nonce=_random(), verifier=_random(), back=back, tenant_id=tenant_id)
        metadata = await self._provider.metadata()
        challenge = base64.urlsafe_b64encode(sha256(attempt.verifier.encode()).digest()).rstrip(b"=").decode()
        query = urlencode(
            {
                "response_type": "code",
                "client_id": self._settings.client_id,
                "redirect_uri": origin + CALLBACK,
                "scope": " ".join(self._settings.scopes),
                "state": attempt.state,
                "nonce": attempt.nonce,
                "code_challenge": challenge,
                "code_challenge_method": "S256",
            }
        )
        separator = "&" if urlsplit(metadata.authorization_endpoint).query else "?"
        document = orjson.dumps(astuple(attempt)).decode()
        return f"{metadata.authorization_endpoint}{separator}{query}", self._sessions.seal_text(document)

    async def finish(self, origin: str, query: Mapping[str, str], cookie: str | None) -> Answer:
        """Return the ID token for what the provider sent a browser back with.

        Raises:
            Unauthenticated: It is not the answer to an attempt of this browser, or the provider refused.
            Unavailable: The provider does not answer.
        """
        attempt = self._attempt(cookie)
        if attempt is None or not hmac.compare_digest(query.get("state", "").encode(), attempt.state.encode()):
            raise Unauthenticated("This sign-in began in another browser, or took longer than 10 minutes. Try again.")
        metadata = await self._provider.metadata()
        issuer = query.get("iss")
        if issuer != metadata.issuer and (issuer or metadata.authorization_response_iss_parameter_supported):
            raise Unauthenticated("The answer is of another provider. Try again.")
        if "code" not in query:
            why = query.get("error_description") or query.get("error") or "it gave no code"
            raise Unauthenticated(f"The provider refused: {_shown(why)}.")
        token = await self._redeem(origin, query["code"], attempt)
        return Answer(token, attempt.nonce, attempt.back, attempt.tenant_id)

    async def _redeem(self, origin: str, code: str, attempt: Attempt) -> str:
        metadata = await self._provider.metadata()
        client_id, secret = self._settings.client_id or "", self._settings.client_secret
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": origin + CALLBACK,
            "code_verifier": attempt.verifier,
        }
        auth: tuple[str, str] | None = None
        if secret is None:
            form["client_id"] = client_id
        elif "client_secret_basic" in metadata.token_endpoint_auth_methods_supported:
            # Both parts are encoded before, by RFC 6749, section 2.3.1.
            auth = (quote_plus(client_id), quote_plus(secret.get_secret_value()))
        else:
            form |= {"client_id": client_id, "client_secret": secret.get_secret_value()}
        status, answer = await self._provider.post(metadata.token_endpoint, form, auth)
        token = answer.get("id_token")
        if status != _OK:
            raise Unauthenticated(f"The provider refused the code: {_shown(answer.get('error'))}. Try again.")
        if not isinstance(token, str):
            raise Unavailable("The provider gave no ID token: the scope openid is missing.", server="oidc")
        return token

    def _attempt(self, cookie: str | None) -> Attempt | None:
        text = None if cookie is None else self._sessions.open_text(cookie, lifetime_s=ATTEMPT_S)
        return None if text is None else Attempt(*orjson.loads(text))


def _random() -> str:
    return secrets.token_urlsafe(_RANDOM_BYTES)


def _shown(text: object) -> str:
    """Return words of the provider, or of anyone who made the address, for a page."""
    return "".join(character for character in str(text) if character.isprintable())[:_SHOWN_CHARS]
