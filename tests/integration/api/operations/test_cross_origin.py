"""Scripts of web pages call the API only where the operator names their origin."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from nova_workers.base.config import Settings
from nova_workers.base.config.sections import ApiSettings
from tests.integration.api.conftest import Api, Serve

_PAGE = "https://app.example.com"
_PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization, content-type, idempotency-key",
}


def _with(settings: Settings, *origins: str) -> Settings:
    return settings.model_copy(update={"api": settings.api.model_copy(update={"cors_origins": origins})})


async def test_pages_of_a_named_origin_may_call_and_read_answers_of_all_kinds(serve: Serve, settings: Settings) -> None:
    api = await serve(_with(settings, _PAGE))
    async with api.client(None) as http:
        asked = await http.options("/v1/runs", headers={"origin": _PAGE, **_PREFLIGHT})
        assert (asked.status_code, asked.headers["access-control-allow-origin"]) == (200, _PAGE)
        assert "idempotency-key" in asked.headers["access-control-allow-headers"].lower()
        assert "access-control-allow-credentials" not in asked.headers
        # Without a key, and one of the unknown: a script reads why it was refused.
        assert (await http.get("/v1/agents", headers={"origin": _PAGE})).status_code == 401
    for path in ("/v1/agents", "/v1/agents/unknown"):
        answer = await api.http.get(path, headers={"origin": _PAGE})
        assert answer.headers["access-control-allow-origin"] == _PAGE
        assert "Location" in answer.headers["access-control-expose-headers"]


async def test_pages_of_other_origins_may_not(serve: Serve, settings: Settings) -> None:
    api = await serve(_with(settings, _PAGE))
    other = {"origin": "https://evil.example.com"}
    assert (await api.http.options("/v1/runs", headers={**other, **_PREFLIGHT})).status_code == 400
    assert "access-control-allow-origin" not in (await api.http.get("/v1/agents", headers=other)).headers


async def test_without_the_setting_no_page_may(api: Api) -> None:
    answer = await api.http.options("/v1/runs", headers={"origin": _PAGE, **_PREFLIGHT})
    assert answer.status_code == 405
    assert "access-control-allow-origin" not in answer.headers


@pytest.mark.parametrize(
    "origin", ["app.example.com", "https://app.example.com/", "ftp://a.example", "null", "https://"]
)
def test_what_is_no_origin_is_refused_at_the_start(origin: str) -> None:
    with pytest.raises(ValidationError, match="is no origin"):
        ApiSettings(cors_origins=(origin,))
