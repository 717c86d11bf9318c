"""All checks of a fleet's walls from outside, in the order in which they are shown."""

from http import HTTPStatus

import httpx2

from nova_workers.base.errors import Unavailable
from nova_workers.cli.operations.findings import Finding
from nova_workers.cli.security.access import (
    Operation,
    check_key,
    check_other_tenant,
    check_routes,
    check_unknown_ids,
    check_worker_sandboxes,
    check_wrong_keys,
    operations_of,
)
from nova_workers.cli.security.bounds import check_bounds
from nova_workers.cli.security.exposure import (
    check_console_wall,
    check_flower_wall,
    check_headers,
    check_metrics,
    check_transport,
)
from nova_workers.cli.target import Target


async def check_walls(
    target: Target,
    *,
    other_key: str | None = None,
    console_url: str | None = None,
    flower_url: str | None = None,
    patience_s: float,
) -> list[Finding]:
    """Check the walls of a fleet.

    Args:
        target: The API, and a key of one tenant.
        other_key: A key of another tenant.
        console_url: The web console; left out without.
        flower_url: Flower; left out without.
        patience_s: How long a slow client waits to be cut off.

    Raises:
        Unavailable: No API answers there.
    """
    findings = [check_transport("transport", target.url), *await _check_api(target, other_key, patience_s)]
    if console_url:
        findings += await check_console_wall(console_url)
    if flower_url:
        findings += await check_flower_wall(flower_url)
    return findings


async def _check_api(target: Target, other_key: str | None, patience_s: float) -> list[Finding]:
    async with httpx2.AsyncClient(base_url=target.url, timeout=30) as http:
        try:
            key, found = await _usable_key(http, target)
            operations = await _operations(http)
            found += [
                await check_headers(http, "headers"),
                await check_metrics(http, target.url),
                await check_wrong_keys(http, key),
            ]
            found += await _check_access(http, key, other_key, operations)
            return found + await check_bounds(target.url, key, patience_s=patience_s)
        except (httpx2.HTTPError, OSError, ValueError) as error:
            what = str(error) or type(error).__name__
            raise Unavailable(f"{target.url} does not answer as an API does: {what}") from error


async def _usable_key(http: httpx2.AsyncClient, target: Target) -> tuple[str | None, list[Finding]]:
    if target.api_key is None:
        fix = "give a key; one with the scope `runs` is enough"
        return None, [Finding("key", "warn", f"{target.key_source}; ids and bodies were not tried", fix)]
    finding = await check_key(http, target.api_key)
    return (target.api_key if finding.state == "ok" else None), [finding]


async def _operations(http: httpx2.AsyncClient) -> list[Operation]:
    document = await http.get("/openapi.json")
    return operations_of(document.json()) if document.status_code == HTTPStatus.OK else []


async def _check_access(
    http: httpx2.AsyncClient, key: str | None, other_key: str | None, operations: list[Operation]
) -> list[Finding]:
    if not operations:
        fix = "try an address of the API that serves /openapi.json, such as one inside"
        return [Finding("routes", "warn", "not tried: /openapi.json is not served", fix)]
    found = [await check_routes(http, operations)]
    if key:
        found.append(await check_unknown_ids(http, key, operations))
    if key:
        found += await check_worker_sandboxes(http, key)
    if key and other_key:
        found.append(await check_other_tenant(http, key, other_key, operations))
    return found
