"""Which names a server answers to: a page of another name, whose DNS was pointed at this server, gets nothing."""

import re
from collections.abc import Iterable
from ipaddress import ip_address
from typing import Final

_HOST: Final = re.compile(r"(\[[0-9a-f:.]+\]|[^:\[\]]*)(?::\d*)?", re.IGNORECASE)


class AllowedHosts:
    """Host headers that a server accepts.

    Names of loopback and addresses are always accepted: DNS rebinding needs a name that its attacker owns. So is a
    request without the header, which no browser sends.
    """

    def __init__(self, names: Iterable[str]) -> None:
        """Take names; ``*.example.com`` is each name below ``example.com``, and ``*`` is any."""
        given = {name.lower() for name in names}
        self._any = "*" in given
        self._suffixes = (".localhost", *(name[1:] for name in given if name.startswith("*.")))
        self._names = given | {"", "localhost"}

    def __contains__(self, header: str) -> bool:
        if self._any:
            return True
        found = _HOST.fullmatch(header.strip())
        if found is None:
            return False
        name = found[1].lower().removesuffix(".")
        return name in self._names or name.endswith(self._suffixes) or _is_address(name.strip("[]"))


def _is_address(name: str) -> bool:
    try:
        ip_address(name)
    except ValueError:
        return False
    return True
