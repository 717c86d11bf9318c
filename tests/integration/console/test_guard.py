"""What stands before every page: headers, and refusals of other sites' requests."""

from __future__ import annotations

import httpx2
import pytest

from tests.integration.console.conftest import Console
from tests.requirements import proves

PATHS = ("/", "/runs", "/login", "/healthz", "/nowhere", "/runs?status=nonsense")


@pytest.mark.parametrize("path", PATHS)
@proves("security.policies")
async def test_every_answer_has_the_policy_and_cannot_be_framed(
    path: str, console: Console, browser: httpx2.AsyncClient
) -> None:
    async with console.browser() as stranger:
        answers = [await client.get(path) for client in (browser, stranger)]
    for answer in answers:
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "frame-ancestors 'none'" in policy
        assert answer.headers["x-frame-options"] == "DENY"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"


@pytest.mark.usefixtures("own_console")
async def test_static_files_are_kept_for_ever_under_an_address_of_their_version(console: Console) -> None:
    async with console.browser() as browser:
        answer = await browser.get(console.state.assets.url("js/main.js"))
        assert answer.status_code == 200
        assert "immutable" in answer.headers["cache-control"]
        assert "javascript" in answer.headers["content-type"]
        assert (await browser.get("/static/000000000000/js/main.js")).status_code == 404
        sheets = await browser.get(console.state.assets.url("css/core.css"))
        assert "immutable" in sheets.headers["cache-control"]
        assert sheets.headers["content-type"].startswith("text/css")
        # In the order in which later ones may say more: colours, elements, parts, forms.
        places = [
            sheets.text.index(rule) for rule in ("--bg:", "body {", "main {", ".badge {", ".button {", ".prose {")
        ]
        assert places == sorted(places)


@pytest.mark.parametrize(
    "headers",
    [
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Origin": "https://other.example"},
        {"Origin": "null"},
        {},
    ],
    ids=str,
)
@proves("security.console")
async def test_a_form_of_another_site_is_refused(
    headers: dict[str, str], console: Console, browser: httpx2.AsyncClient
) -> None:
    del browser.headers["Sec-Fetch-Site"]
    answer = await browser.post("/logout", headers=headers)
    assert answer.status_code == 403
    assert (await browser.get("/runs")).status_code == 200


async def test_a_form_with_our_own_origin_is_accepted(console: Console, browser: httpx2.AsyncClient) -> None:
    del browser.headers["Sec-Fetch-Site"]
    assert (await browser.post("/logout", headers={"Origin": console.url})).status_code == 303


@proves("security.console")
async def test_a_link_of_another_site_is_asked_again_from_here(console: Console) -> None:
    # The cookie is SameSite=Strict, so the first request of such a link comes without it.
    async with console.browser() as browser:
        answer = await browser.get("/runs", headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 200
        assert 'http-equiv="refresh"' in answer.text


@proves("security.policies")
async def test_no_page_has_inline_scripts_or_styles(browser: httpx2.AsyncClient) -> None:
    for path in ("/", "/runs"):
        text = (await browser.get(path)).text
        assert "<style" not in text
        assert "style=" not in text
        assert "onclick=" not in text
        assert text.count("<script") == text.count('<script type="module" src="/static/')
