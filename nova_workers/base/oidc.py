"""An OpenID Connect provider as a client sees it: its metadata by discovery, and requests with bounds.

The operator names the provider, so it may be in a private network: addresses are not checked. What it answers is not
trusted beyond that: answers are bounded, redirects are not followed, and the metadata must be of the issuer that the
operator named (OpenID Connect Discovery 1.0, section 4.3).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import httpx2
import orjson
from pydantic import BaseModel, ConfigDict, ValidationError

from nova_workers.base.errors import Unavailable

_TIMEOUT_S: Final = 10.0
_MAX_BYTES: Final = 1 << 20
_FRESH_S: Final = 3_600.0
_OK: Final = 200
_FAILED: Final = 500

Monotonic = Callable[[], float]


class ProviderMetadata(BaseModel):
    """What a provider says about itself."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    device_authorization_endpoint: str | None = None
    """None if the provider has no device flow (RFC 8628)."""
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class OidcProvider:
    """One provider. Its metadata is read once an hour."""

    def __init__(self, issuer: str, *, monotonic_s: Monotonic = time.monotonic) -> None:
        self.issuer = issuer
        self._monotonic_s = monotonic_s
        self._read: tuple[float, ProviderMetadata] | None = None

    async def metadata(self) -> ProviderMetadata:
        """Return the provider's metadata.

        Raises:
            Unavailable: It does not answer, or with no metadata of this issuer.
        """
        now_s = self._monotonic_s()
        if self._read is None or now_s - self._read[0] > _FRESH_S:
            self._read = (now_s, await self._discover())
        return self._read[1]

    async def fetch(self, url: str) -> Any:
        """Return the JSON document at one of the provider's addresses.

        Raises:
            Unavailable: It does not answer, or with something else.
        """
        status, document = await self._exchange("GET", url, {}, None, None)
        if status != _OK:
            raise _unavailable(f"{url} answered with {status}")
        return document

    async def post(
        self, url: str, form: Mapping[str, str], auth: tuple[str, str] | None = None
    ) -> tuple[int, Mapping[str, Any]]:
        """Send a form, and return the status and the JSON object of the answer.

        Args:
            auth: A user and a password, for HTTP Basic.

        Raises:
            Unavailable: It does not answer, or with something else.
        """
        status, document = await self._exchange("POST", url, {"accept": "application/json"}, form, auth)
        if not isinstance(document, dict):
            raise _unavailable(f"{url} answered with {status} and no JSON object")
        return status, document

    async def _discover(self) -> ProviderMetadata:
        url = f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"
        try:
            metadata = ProviderMetadata.model_validate(await self.fetch(url))
        except ValidationError as error:
            raise _unavailable(f"{url} is not the metadata of a provider") from error
        if metadata.issuer != self.issuer:
            raise _unavailable(f"{url} is of the issuer {metadata.issuer!r}, and not of {self.issuer!r}")
        if not (urlsplit(self.issuer).scheme == "http" or _all_are_encrypted(metadata)):
            raise _unavailable(f"{url} names an address without TLS")
        return metadata

    async def _exchange(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        form: Mapping[str, str] | None,
        auth: tuple[str, str] | None,
    ) -> tuple[int, Any]:
        try:
            # A connection of its own: there are few requests, and long pauses between them.
            async with (
                httpx2.AsyncClient(timeout=_TIMEOUT_S, follow_redirects=False) as client,
                client.stream(method, url, headers=dict(headers), data=form and dict(form), auth=auth) as response,
            ):
                content = bytearray()
                async for chunk in response.aiter_bytes():
                    content += chunk
                    if len(content) > _MAX_BYTES:
                        raise _unavailable(f"{url} answered with more than {_MAX_BYTES:,} bytes")
                if response.status_code >= _FAILED:
                    raise _unavailable(f"{url} answered with {response.status_code}")
                return response.status_code, orjson.loads(content)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _unavailable(f"{url} did not answer ({type(error).__name__})") from error
        except orjson.JSONDecodeError as error:
            raise _unavailable(f"{url} answered with no JSON") from error


def _all_are_encrypted(metadata: ProviderMetadata) -> bool:
    places = [metadata.authorization_endpoint, metadata.token_endpoint, metadata.jwks_uri]
    if metadata.device_authorization_endpoint is not None:
        places.append(metadata.device_authorization_endpoint)
    return all(urlsplit(place).scheme == "https" for place in places)


def _unavailable(what: str) -> Unavailable:
    return Unavailable(f"The provider of single sign-on cannot be used: {what}.", server="oidc")
