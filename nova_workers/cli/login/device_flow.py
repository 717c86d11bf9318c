"""The device flow of OAuth 2.0 (RFC 8628): a person confirms a code in any browser, and the program here gets a token.

The program needs no secret, no browser and no address that a provider could send one to.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nova_workers.base.clock import spell_duration
from nova_workers.base.errors import ConfigurationError, Forbidden, Unauthenticated, Unavailable
from nova_workers.base.oidc import Monotonic, OidcProvider

GRANT: Final = "urn:ietf:params:oauth:grant-type:device_code"

_SLOWER_S: Final = 5.0
"""RFC 8628, section 3.5: what `slow_down` adds to the interval, for all requests that follow."""
_LONGEST_PAUSE_S: Final = 60.0
_OK: Final = 200
_SHOWN_CHARS: Final = 200

Sleep = Callable[[float], Awaitable[object]]


class DeviceCode(BaseModel):
    """What the provider answers to the beginning of a sign-in."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None = None
    """The address with the code in it."""
    expires_in: float = Field(gt=0, le=86_400)
    interval: float = Field(default=5.0, ge=0, le=_LONGEST_PAUSE_S)


class DeviceFlow:
    """One sign-in with a provider's public client."""

    def __init__(
        self,
        provider: OidcProvider,
        client_id: str,
        *,
        sleep: Sleep = asyncio.sleep,
        monotonic_s: Monotonic = time.monotonic,
    ) -> None:
        self._provider = provider
        self._client_id = client_id
        self._sleep = sleep
        self._monotonic_s = monotonic_s

    async def begin(self, scopes: Sequence[str]) -> DeviceCode:
        """Return the code that a person is to confirm, and where.

        Raises:
            ConfigurationError: The provider has no device flow, or not for this client.
            Unavailable: It does not answer, or not as it should.
        """
        endpoint = (await self._provider.metadata()).device_authorization_endpoint
        if endpoint is None:
            raise ConfigurationError(
                f"The provider {self._provider.issuer!r} has no device flow. Sign in at the console and make a key "
                "there, or ask the operator for one."
            )
        form = {"client_id": self._client_id, "scope": " ".join(scopes)}
        status, answer = await self._provider.post(endpoint, form)
        if status != _OK:
            raise ConfigurationError(
                f"The provider does not let its client {self._client_id!r} begin a device flow: {_words(answer)}. The "
                "operator registers a public client with this grant, and names it in NOVA_OIDC__DEVICE_CLIENT_ID."
            )
        try:
            code = DeviceCode.model_validate(answer)
        except ValidationError as error:
            raise Unavailable("The provider's answer has no code to confirm.", server="oidc") from error
        if urlsplit(code.verification_uri).scheme not in ("https", urlsplit(self._provider.issuer).scheme):
            raise Unavailable("The provider gave no https address to confirm the code at.", server="oidc")
        return code

    async def wait(self, code: DeviceCode) -> str:
        """Wait until the person has confirmed the code, and return the ID token.

        The provider is asked as seldom as it wants: after its interval, 5 s later after each `slow_down`, and after
        twice the time while it does not answer.

        Raises:
            Forbidden: The person, or the provider, refused.
            Unauthenticated: The code expired.
            ConfigurationError: The provider refuses the client.
            Unavailable: It gave no ID token.
        """
        endpoint = (await self._provider.metadata()).token_endpoint
        form = {"grant_type": GRANT, "device_code": code.device_code, "client_id": self._client_id}
        ends_at_s = self._monotonic_s() + code.expires_in
        pause_s = code.interval
        while self._monotonic_s() + pause_s < ends_at_s:
            await self._sleep(pause_s)
            try:
                status, answer = await self._provider.post(endpoint, form)
            except Unavailable:
                # RFC 8628 asks for an exponential backoff here; 1 s where the interval is 0.
                pause_s = min(max(2 * pause_s, 1.0), _LONGEST_PAUSE_S)
                continue
            if status == _OK:
                return _id_token(answer)
            pause_s += _pause_after(answer, code)
        raise _expired(code)


def _pause_after(answer: Mapping[str, Any], code: DeviceCode) -> float:
    """Return by how much longer to wait before the next request, if there is to be one."""
    match answer.get("error"):
        case "authorization_pending":
            return 0.0
        case "slow_down":
            return _SLOWER_S
        case "access_denied":
            raise Forbidden(f"The sign-in was refused at the provider: {_words(answer)}. No session was begun.")
        case "expired_token":
            raise _expired(code)
        case _:
            raise ConfigurationError(f"The provider refused the sign-in: {_words(answer)}. Run `nova login` again.")


def _id_token(answer: Mapping[str, Any]) -> str:
    token = answer.get("id_token")
    if not isinstance(token, str):
        raise Unavailable("The provider gave no ID token: the scope openid is missing.", server="oidc")
    return token


def _expired(code: DeviceCode) -> Unauthenticated:
    return Unauthenticated(
        f"The code {code.user_code} was not confirmed within {spell_duration(code.expires_in)}. Run `nova login` again."
    )


def _words(answer: Mapping[str, Any]) -> str:
    said = str(answer.get("error_description") or answer.get("error") or "it gave no reason")
    return said[:_SHOWN_CHARS].rstrip(".")
