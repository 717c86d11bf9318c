"""Checks of what is open without a key: transport, headers, metrics, the console, Flower."""

from http import HTTPStatus
from typing import Final

import httpx2

from nova_workers.cli.operations.findings import Finding
from nova_workers.cli.security.raw import loopback

_NONE_OF = ("unsafe-inline", "unsafe-eval")
_ELSEWHERE: Final = "https://elsewhere.invalid"
_GUARDED_PATHS = ("/healthz", "/v1/whoami", "/docs")


def check_transport(name: str, url: str) -> Finding:
    """Check that keys do not cross a network in clear."""
    if url.startswith("https://"):
        return Finding(name, "ok", f"TLS at {url}")
    if loopback(url):
        return Finding(name, "ok", f"plain HTTP on loopback at {url}")
    fix = "put TLS in front of it, and give its https:// address to clients"
    return Finding(name, "fail", f"plain HTTP at {url}: keys and messages cross the network in clear", fix)


async def check_headers(http: httpx2.AsyncClient, name: str, paths: tuple[str, ...] = _GUARDED_PATHS) -> Finding:
    """Check that answers tell browsers to run nothing, to guess no types, and to serve no other site."""
    wrong: list[str] = []
    for path in paths:
        answer = await http.get(path, headers={"Origin": _ELSEWHERE})
        policy = answer.headers.get("content-security-policy", "")
        if "default-src" not in policy or any(word in policy for word in _NONE_OF):
            wrong.append(f"{path}: Content-Security-Policy {policy!r}")
        if answer.headers.get("x-content-type-options") != "nosniff":
            wrong.append(f"{path}: no X-Content-Type-Options: nosniff")
        if answer.headers.get("access-control-allow-origin") in ("*", _ELSEWHERE):
            wrong.append(f"{path}: other sites may read it (Access-Control-Allow-Origin)")
    if wrong:
        return Finding(name, "fail", "; ".join(wrong), "let the proxy in front pass on the headers of the server")
    return Finding(name, "ok", f"policies of {', '.join(paths)}")


async def check_metrics(http: httpx2.AsyncClient, url: str) -> Finding:
    """Check that metrics, which need no key, are reached on this machine only."""
    status = (await http.get("/metrics")).status_code
    if status != HTTPStatus.OK:
        return Finding("metrics", "ok", f"/metrics answers {status}")
    if loopback(url):
        return Finding("metrics", "ok", "/metrics needs no key, and was reached over loopback")
    fix = "do not route /metrics to the outside: it tells what is spent on which model"
    return Finding("metrics", "fail", "/metrics is reached without a key", fix)


async def check_console_wall(url: str) -> list[Finding]:
    """Check that the console shows nothing without a sign-in."""
    async with httpx2.AsyncClient(base_url=url, timeout=10) as http:
        try:
            pages = {path: (await http.get(path)).status_code for path in ("/", "/runs", "/agents")}
            headers = await check_headers(http, "console headers", ("/login",))
        except httpx2.HTTPError as error:
            return [_unreachable("console", url, error)]
    shown = [path for path, status in pages.items() if status == HTTPStatus.OK]
    if shown:
        fix = "is this the console of this version? Its pages ask for a sign-in"
        return [Finding("console", "fail", f"{', '.join(shown)} shown without a sign-in", fix)]
    return [Finding("console", "ok", "asks for a sign-in"), check_transport("console transport", url), headers]


async def check_flower_wall(url: str) -> list[Finding]:
    """Check that Flower asks for its password."""
    async with httpx2.AsyncClient(base_url=url, timeout=10, follow_redirects=True) as http:
        try:
            pages = {
                path: (await http.get(path)).status_code for path in ("/", "/api/tasks", "/api/workers", "/metrics")
            }
        except httpx2.HTTPError as error:
            return [_unreachable("flower", url, error)]
    shown = [path for path, status in pages.items() if status == HTTPStatus.OK]
    if shown:
        fix = "start it with `nova flower`, which sets a password, and do not expose it"
        return [Finding("flower", "fail", f"{', '.join(shown)} shown without a password", fix)]
    return [Finding("flower", "ok", "asks for a password"), check_transport("flower transport", url)]


def _unreachable(name: str, url: str, error: httpx2.HTTPError) -> Finding:
    return Finding(name, "warn", f"nothing was read at {url}: {error or type(error).__name__}", "is the address right?")
