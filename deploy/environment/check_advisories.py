"""Look for published advisories of what users install: ``python deploy/environment/check_advisories.py``.

Asks OSV, or a mirror of it (``--database URL``), for each version in `requirements.txt`. ``make advisories`` fails
without an answer. ``make check`` adds ``--where-reachable``: without network it says that nothing was looked up, and
passes. Both fail at an advisory that ``--ignore ID`` does not name.
"""

import argparse
import re
import sys
from pathlib import Path
from typing import Any

import httpx2

_LOCK = Path(__file__).resolve().parents[2] / "requirements.txt"
_PINNED = re.compile(r"^([A-Za-z0-9][A-Za-z0-9._-]*)==([^\s;\\]+)", re.MULTILINE)
_DATABASE = "https://api.osv.dev"


def pinned(lock: str) -> list[tuple[str, str]]:
    """Return the packages of a lock's text with their versions, in its order."""
    return _PINNED.findall(lock)


def main(arguments: list[str] | None = None) -> None:
    """End with 1 at an advisory, and with 2 where the database does not answer."""
    parser = argparse.ArgumentParser(
        prog="check_advisories.py", description="Look for advisories of what users install."
    )
    parser.add_argument("--database", metavar="URL", default=_DATABASE, help="OSV, or what speaks its API")
    parser.add_argument(
        "--ignore", metavar="ID", action="append", default=[], help="an advisory that does not concern us"
    )
    parser.add_argument("--where-reachable", action="store_true", help="pass where the database cannot be reached")
    given = parser.parse_args(arguments)
    packages = pinned(_LOCK.read_text())
    try:
        found = _advisories(given.database, packages, frozenset(given.ignore))
    except httpx2.HTTPError as error:
        if given.where_reachable and isinstance(error, httpx2.TransportError):
            print(f"advisories: nothing looked up, {given.database} cannot be reached")
            return
        print(f"advisories: {given.database} did not answer: {error}", file=sys.stderr)
        sys.exit(2)
    if found:
        sys.exit("\n".join(("advisories:", *found)))
    print(f"advisories: none for {len(packages)} packages")


def _advisories(database: str, packages: list[tuple[str, str]], ignored: frozenset[str]) -> list[str]:
    """Return a line for each advisory of a package, such as ``starlette 1.10.0: GHSA-…: it leaks``."""
    queries = [{"package": {"ecosystem": "PyPI", "name": name}, "version": version} for name, version in packages]
    found: list[str] = []
    with httpx2.Client(base_url=database, timeout=10) as client:
        results = _json(client.post("/v1/querybatch", json={"queries": queries}))["results"]
        for (name, version), result in zip(packages, results, strict=True):
            for advisory_id in sorted({each["id"] for each in result.get("vulns", ())} - ignored):
                summary = _json(client.get(f"/v1/vulns/{advisory_id}")).get("summary", "see its page")
                found.append(f"  {name} {version}: {advisory_id}: {summary}")
    return found


def _json(response: httpx2.Response) -> dict[str, Any]:
    return response.raise_for_status().json()


if __name__ == "__main__":
    main()
