"""How addresses are shown where people read them later: logs, errors, traces.

The path or query of an address may be a secret, such as the token of a webhook, and so may its user and password. Its
scheme and host say where something went.
"""

import re
from typing import Final

_ADDRESS: Final = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]*)://([^\s/?#\\'\"<>]*)([^\s'\"<>]*)")
_HOST: Final = re.compile(r"(?:\[[^\[\]]*\]|[^:]*)(?::\d*)?")


def bare_addresses(text: str) -> str:
    """Return a text in which each address has its scheme, host and port only, and a mark where more was."""
    return _ADDRESS.sub(_bare, text) if "://" in text else text


def bare_address(address: str) -> str:
    """Return the scheme, host and port of an address, with a mark where it had more, or the whole if it has no host."""
    text = "".join(address.split())
    found = _ADDRESS.match(text)
    if found is None:
        return "(no address)"
    return _shown(found[1], found[2], text[found.end(2) :])


def _bare(found: re.Match[str]) -> str:
    return _shown(found[1], found[2], found[3])


def _shown(scheme: str, authority: str, rest: str) -> str:
    _, _, host = authority.rpartition("@")
    if _HOST.fullmatch(host) is None:
        # The beginning of a user and a password that has a slash, a # or a ?, which ends the host.
        host = "…"
    return f"{scheme}://{host}{'/…' if rest.strip('/') else ''}"
