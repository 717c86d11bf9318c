"""The device flow of `nova login`: how often the provider is asked, and what each of its refusals means."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from nova_workers.base.errors import ConfigurationError, Forbidden, NovaError, Unauthenticated, Unavailable
from nova_workers.base.oidc import OidcProvider
from nova_workers.cli.login.device_flow import GRANT, DeviceCode, DeviceFlow
from tests.support.servers.asgi import serving

_CODE = {
    "device_code": "the secret half",
    "user_code": "WDJB-MJHT",
    "verification_uri": "http://127.0.0.1/device",
    "expires_in": 600,
    "interval": 5,
}
_GOOD = (200, {"id_token": "a token", "token_type": "Bearer"})


class Provider:
    """A provider with planned answers, and the time that passes while it is not asked."""

    def __init__(self) -> None:
        self.url = ""
        self.has_device_flow = True
        self.begins: tuple[int, dict[str, Any]] = (200, _CODE)
        self.answers: list[tuple[int, dict[str, Any]]] = []
        self.asked: list[dict[str, Any]] = []
        self.pauses_s: list[float] = []
        self.app = Starlette(
            routes=[
                Route("/.well-known/openid-configuration", self._metadata),
                Route("/device/auth", self._begin, methods=["POST"]),
                Route("/token", self._token, methods=["POST"]),
            ]
        )

    @property
    def flow(self) -> DeviceFlow:
        """A sign-in whose pauses take no time."""
        return DeviceFlow(OidcProvider(self.url), "commands", sleep=self._sleep, monotonic_s=lambda: sum(self.pauses_s))

    async def _sleep(self, delay_s: float) -> None:
        self.pauses_s.append(delay_s)

    async def _metadata(self, request: Request) -> Response:
        device = {"device_authorization_endpoint": f"{self.url}/device/auth"} if self.has_device_flow else {}
        places = {name: f"{self.url}/{name}" for name in ("authorization_endpoint", "jwks_uri")}
        return JSONResponse({"issuer": self.url, "token_endpoint": f"{self.url}/token", **places, **device})

    async def _begin(self, request: Request) -> Response:
        self.asked.append(dict(await request.form()))
        status, body = self.begins
        return JSONResponse(body, status_code=status)

    async def _token(self, request: Request) -> Response:
        self.asked.append(dict(await request.form()))
        status, body = self.answers.pop(0)
        return JSONResponse(body, status_code=status)


@pytest.fixture
async def provider() -> AsyncGenerator[Provider]:
    """A provider for one test."""
    found = Provider()
    async with serving(found.app) as url:
        found.url = url
        yield found


def _refusal(error: str) -> tuple[int, dict[str, Any]]:
    return 400, {"error": error}


async def test_the_provider_is_asked_after_its_interval_and_later_after_each_slow_down(provider: Provider) -> None:
    provider.answers = [_refusal("authorization_pending"), _refusal("slow_down"), _refusal("slow_down"), _GOOD]
    code = await provider.flow.begin(("openid", "groups"))
    assert await provider.flow.wait(code) == "a token"
    assert provider.pauses_s == [5, 5, 10, 15]
    assert provider.asked[0] == {"client_id": "commands", "scope": "openid groups"}
    assert provider.asked[-1] == {"client_id": "commands", "grant_type": GRANT, "device_code": "the secret half"}


async def test_a_provider_that_does_not_answer_is_asked_less_and_less_often(provider: Provider) -> None:
    provider.answers = [(503, {}), (502, {}), _GOOD]
    assert await provider.flow.wait(DeviceCode.model_validate(_CODE)) == "a token"
    assert provider.pauses_s == [5, 10, 20]


async def test_a_code_is_not_asked_for_beyond_its_life(provider: Provider) -> None:
    provider.answers = [_refusal("authorization_pending")] * 3
    with pytest.raises(Unauthenticated, match="WDJB-MJHT was not confirmed within 18 s"):
        await provider.flow.wait(DeviceCode.model_validate({**_CODE, "expires_in": 18}))
    assert provider.answers == []


@pytest.mark.parametrize(
    ("answer", "kind", "words"),
    [
        (_refusal("access_denied"), Forbidden, "refused at the provider"),
        (_refusal("expired_token"), Unauthenticated, "was not confirmed within 10 min"),
        (_refusal("invalid_grant"), ConfigurationError, "refused the sign-in: invalid_grant"),
        ((200, {"access_token": "alone"}), Unavailable, "the scope openid is missing"),
    ],
)
async def test_each_end_without_a_token_says_why(
    provider: Provider, answer: tuple[int, dict[str, Any]], kind: type[NovaError], words: str
) -> None:
    provider.answers = [answer]
    with pytest.raises(kind, match=words):
        await provider.flow.wait(DeviceCode.model_validate(_CODE))


async def test_a_provider_or_client_without_the_flow_is_named_before_anyone_waits(provider: Provider) -> None:
    provider.begins = _refusal("unauthorized_client")
    with pytest.raises(ConfigurationError, match=r"'commands'.*unauthorized_client.*NOVA_OIDC__DEVICE_CLIENT_ID"):
        await provider.flow.begin(("openid",))
    provider.begins = (200, {**_CODE, "verification_uri": "javascript:alert(1)"})
    with pytest.raises(Unavailable, match="no https address"):
        await provider.flow.begin(("openid",))
    provider.has_device_flow = False
    with pytest.raises(ConfigurationError, match="has no device flow"):
        await provider.flow.begin(("openid",))
