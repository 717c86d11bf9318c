"""``/docs``: the interactive reference, from this server alone."""

import re

import pytest

from tests.integration.api.conftest import Api
from tests.requirements import proves


@proves("reference.offline")
async def test_the_reference_loads_all_that_it_needs_from_this_server(api: Api) -> None:
    async with api.client(None) as http:
        page = await http.get("/docs")
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        loaded = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(loaded) == 4
        for address in loaded:
            if address == "data:,":
                continue
            assert not address.startswith(("/", "http"))
            answer = await http.get(f"/{address}")
            assert answer.status_code == 200
            kind = "text/css" if address.endswith(".css") else "text/javascript"
            assert answer.headers["content-type"].startswith(kind)
            assert answer.headers["x-content-type-options"] == "nosniff"
        assert (await http.get("/openapi.json")).json()["openapi"].startswith("3.1")


@proves("reference.offline")
async def test_the_reference_allows_no_inline_script_and_no_other_server(api: Api) -> None:
    page = await api.http.get("/docs")
    policy = page.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "//" not in policy
    assert "default-src 'none'" in policy
    assert re.search(r"<script(?![^>]*src=)|<style|\son\w+=|\sstyle=", page.text) is None


@proves("reference.offline", "security.policies")
async def test_every_answer_has_a_policy_under_which_a_browser_loads_nothing_else(api: Api) -> None:
    for path in ("/v1/agents", "/v1/nothing", "/openapi.json", "/metrics", "/docs/start.js", "/docs/assets/nothing.js"):
        policy = (await api.http.get(path)).headers.get_list("content-security-policy")
        assert policy == ["default-src 'none'; frame-ancestors 'none'"], path
    assert len((await api.http.get("/docs")).headers.get_list("content-security-policy")) == 1


@pytest.mark.parametrize("path", ["/docs/assets/../main.py", "/docs/assets/nothing.js", "/redoc"])
async def test_no_other_reference_is_served(api: Api, path: str) -> None:
    answer = await api.http.get(path)
    assert (answer.status_code, answer.json()["code"]) == (404, "not_found")
