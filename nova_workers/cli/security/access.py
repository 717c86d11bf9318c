"""Checks of keys and tenants: each route needs a key, and no key reaches what is not its tenant's."""

import asyncio
import re
import secrets
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final

import httpx2

from nova_workers.cli.operations.findings import Finding
from nova_workers.cli.operations.sandbox_checks import check_sandboxes
from nova_workers.contracts.http.fleet import WorkerView

_AT_ONCE: Final = 8
_MOST_OF_A_LIST: Final = 5
_MOST_WAITS: Final = 3
_LONGEST_WAIT_S: Final = 10
_ONE_OF_A_KIND: Final = re.compile(r"[a-z]+_[0-9A-Z]{26}\Z")
"""Ids that no other tenant can have, unlike names and numbers."""
_ID: Final = re.compile(r"\{(\w+)\}")
_NO_NAME: Final = "none-of-this-fleet"
_NO_NUMBER: Final = "2000000000"
_OF_ALL_TENANTS: Final = frozenset({"/v1/tenants"})
"""An operator reads these, of whichever tenant."""
_REFUSED: Final = frozenset({403, 404, 410, 422})
_PROBLEM: Final = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Operation:
    """A method of a path; in the path each id is replaced by one that nothing has."""

    method: str
    path: str
    template: str
    harmless: bool
    """Whether a fleet without any wall would still change nothing by it."""


def operations_of(document: Mapping[str, Any]) -> list[Operation]:
    """Return the operations below /v1 of an OpenAPI document."""
    return [
        Operation(
            method.upper(),
            _filled(template, operation),
            template,
            harmless=method == "get" or "{" in template or "requestBody" in operation,
        )
        for template, item in document["paths"].items()
        for method, operation in item.items()
        if template.startswith("/v1/")
    ]


async def check_routes(http: httpx2.AsyncClient, operations: list[Operation]) -> Finding:
    """Check that each route refuses a request without a key. Bodies are no JSON, so that nothing can take effect."""
    limit = asyncio.Semaphore(_AT_ONCE)
    tried = [operation for operation in operations if operation.harmless]

    async def is_open(operation: Operation) -> str | None:
        async with limit:
            answer = await _patiently(http, operation.method, operation.path, content=b"{")
        ours = answer.headers.get("content-type", "").startswith(_PROBLEM)
        # A proxy that does not route the path refuses it likewise.
        refused = answer.status_code in (401, 429) or (answer.status_code in (403, 404) and not ours)
        return None if refused else f"{operation.method} {operation.template} ({answer.status_code})"

    found = [name for name in await asyncio.gather(*map(is_open, tried)) if name]
    if found:
        fix = "these must answer 401: does a proxy add a key, or does another program answer?"
        return Finding("routes without a key", "fail", f"{len(found)} answer: {', '.join(found[:5])}", fix)
    return Finding(
        "routes without a key", "ok", f"{len(tried)} of {len(operations)} refuse it; the others were not tried"
    )


async def check_key(http: httpx2.AsyncClient, key: str) -> Finding:
    """Check that a key is valid: what is refused for its key proves nothing."""
    status = (await _patiently(http, "GET", "/v1/whoami", headers=_bearer(key))).status_code
    if status == HTTPStatus.OK:
        return Finding("key", "ok", "valid")
    return Finding("key", "fail", f"answered {status}; nothing was tried with it", "give a valid one with --api-key")


async def check_wrong_keys(http: httpx2.AsyncClient, key: str | None) -> Finding:
    """Check that keys which do not exist are refused: a few, as many wrong ones would slow this address down."""
    wrong = ["Basic bm92YTpub3Zh", f"Bearer nova_{secrets.token_urlsafe(32)}"]
    if key:
        wrong.append(f"Bearer {key[:-1]}{'A' if key[-1] != 'A' else 'B'}")
    statuses = [
        (await _patiently(http, "GET", "/v1/whoami", headers={"Authorization": given})).status_code for given in wrong
    ]
    if set(statuses) == {401}:
        return Finding("wrong keys", "ok", f"{len(wrong)} refused")
    fix = "wrong keys must be answered with 401: does a proxy add a key?"
    return Finding("wrong keys", "fail", f"answered {', '.join(map(str, statuses))}", fix)


async def check_unknown_ids(http: httpx2.AsyncClient, key: str, operations: list[Operation]) -> Finding:
    """Check that ids that nothing has are answered as such, wherever one can be read by its id."""
    limit = asyncio.Semaphore(_AT_ONCE)
    tried = [operation for operation in operations if operation.method == "GET" and "{" in operation.template]

    async def odd(operation: Operation) -> str | None:
        async with limit:
            status = (await _patiently(http, "GET", operation.path, headers=_bearer(key))).status_code
        return None if status in _REFUSED else f"{operation.template} ({status})"

    found = [name for name in await asyncio.gather(*map(odd, tried)) if name]
    if found:
        fix = "these must answer 404; see the log of the API, and report it"
        return Finding("unknown ids", "fail", f"{len(found)} answer otherwise: {', '.join(found[:5])}", fix)
    return Finding("unknown ids", "ok", f"{len(tried)} routes refuse them")


async def check_other_tenant(
    http: httpx2.AsyncClient, key: str, other_key: str, operations: list[Operation]
) -> Finding:
    """Check that what the key of each of two tenants lists is not found with that of the other."""
    whose = [await _json(http, "/v1/whoami", each) for each in (key, other_key)]
    if None in whose or whose[0]["tenant_id"] == whose[1]["tenant_id"]:
        fix = "give with --other-key a valid key of another tenant: `nova tenants create NAME` makes one"
        return Finding("another tenant", "fail", "the two keys are not of two tenants", fix)
    tried, found = 0, list[str]()
    for mine, theirs in ((key, other_key), (other_key, key)):
        async for path in _readable(http, theirs, operations):
            tried += 1
            status = (await _patiently(http, "GET", path, headers=_bearer(mine))).status_code
            if status not in _REFUSED:
                found.append(f"{path} ({status})")
    if found:
        fix = "stop sharing this fleet between tenants, and report it"
        return Finding("another tenant", "fail", f"read with the other's key: {', '.join(found[:5])}", fix)
    if not tried:
        return Finding("another tenant", "warn", "neither tenant has anything to read", "send a message in one first")
    return Finding("another tenant", "ok", f"{tried} ids of the two are not found with the other's key")


async def check_worker_sandboxes(http: httpx2.AsyncClient, key: str) -> list[Finding]:
    """Check that workers confine commands; nothing without the scope `operator`, which alone shows workers."""
    fleet = await _json(http, "/v1/fleet", key)
    workers = fleet.get("workers") if isinstance(fleet, dict) else None
    return check_sandboxes([WorkerView.model_validate(worker) for worker in workers or ()])


async def _readable(http: httpx2.AsyncClient, key: str, operations: list[Operation]) -> AsyncGenerator[str]:
    """Yield paths of things that a key lists, and that its tenant can read by their ids."""
    gets = {operation.template for operation in operations if operation.method == "GET"} - _OF_ALL_TENANTS
    for listed in sorted(gets):
        if "{" in listed or not any(re.fullmatch(re.escape(listed) + r"/\{\w+\}", each) for each in gets):
            continue
        page = await _json(http, f"{listed}?limit={_MOST_OF_A_LIST}", key)
        for item in page.get("items", ()) if isinstance(page, dict) else ():
            if isinstance(item, dict) and _ONE_OF_A_KIND.match(str(item.get("id"))):
                path = f"{listed}/{item['id']}"
                if await _json(http, path, key) is not None:
                    yield path


async def _json(http: httpx2.AsyncClient, path: str, key: str) -> Any:
    """Return the value that a key reads at a path; None if it reads none."""
    answer = await _patiently(http, "GET", path, headers=_bearer(key))
    return answer.json() if answer.status_code == HTTPStatus.OK else None


async def _patiently(http: httpx2.AsyncClient, method: str, path: str, **given: Any) -> httpx2.Response:
    """Send a request, again where the rate of this address was exceeded."""
    for _ in range(_MOST_WAITS):
        answer = await http.request(method, path, **given)
        if answer.status_code != HTTPStatus.TOO_MANY_REQUESTS:
            return answer
        # A proxy may name a date instead.
        after = answer.headers.get("retry-after", "")
        await asyncio.sleep(min(int(after), _LONGEST_WAIT_S) if after.isdigit() else 1)
    return await http.request(method, path, **given)


def _bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def _filled(template: str, operation: Mapping[str, Any]) -> str:
    numbers = {
        parameter["name"]
        for parameter in operation.get("parameters", ())
        if parameter["in"] == "path" and parameter["schema"].get("type") == "integer"
    }
    return _ID.sub(lambda found: _NO_NUMBER if found[1] in numbers else _NO_NAME, template)
