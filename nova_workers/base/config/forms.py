"""The forms of single settings that pydantic does not know: addresses, folders, tokens. Errors never quote a secret."""

import re
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

_LONGEST_S = 1e9
"""Thirty years: what is longer does not fit into the intervals of Postgres and the timers of the kernel."""
_MOST = 2**31 - 1
"""The largest value of a 32-bit column."""

Seconds = Annotated[float, Field(gt=0, le=_LONGEST_S)]
SecondsOrNone = Annotated[float, Field(ge=0, le=_LONGEST_S)]
"""0 is none at all."""
Count = Annotated[int, Field(gt=0, le=_MOST)]

_DATABASE = re.compile(r"postgres(ql)?://\S+")
_REDIS_SCHEMES = frozenset({"redis", "rediss"})
_HOST = re.compile(r"[^\s/\[\]@]*")
_NAME = re.compile(r"\*|(\*\.)?[a-z0-9]([a-z0-9._-]*[a-z0-9])?", re.IGNORECASE)
_PUBLIC_URL = re.compile(
    r"https?://([a-z0-9]([a-z0-9._-]*[a-z0-9])?|\[[0-9a-f:.]+\])(:[1-9][0-9]{0,4})?", re.IGNORECASE | re.ASCII
)
_TOKEN = re.compile(r"\d+:\S+")


def empty_is_unset(value: object) -> object:
    """Return None for an empty value: deployments set each variable, also of a server or a bot that is not there."""
    return value or None


def _database(url: SecretStr) -> SecretStr:
    if _DATABASE.fullmatch(url.get_secret_value()) is None:
        raise ValueError("give an address of Postgres, as postgresql://user:password@host/database is")
    return url


def _redis(url: SecretStr) -> SecretStr:
    text = url.get_secret_value()
    if text.startswith("unix:/"):
        return url
    try:
        parts = urlsplit(text)
        fits = parts.scheme in _REDIS_SCHEMES and bool(parts.hostname) and parts.port != 0
    except ValueError:
        fits = False
    else:
        fits = fits and (parts.path.strip("/") or "0").isdecimal()
    if not fits:
        raise ValueError("give an address of Redis, as redis://host:6379/0 and unix:///path?db=0 are")
    return url


def _public_url(url: str) -> str:
    # Pages show it within commands and programs.
    if _PUBLIC_URL.fullmatch(url) is None:
        raise ValueError("give an address without a path, as https://nova.example.com and http://10.0.0.7:8700 are")
    return url


def _token(token: SecretStr) -> SecretStr:
    if _TOKEN.fullmatch(token.get_secret_value()) is None:
        raise ValueError("give a token as BotFather writes it: the bot's number, a colon, and letters and digits")
    return token


def _host(host: str) -> str:
    if _HOST.fullmatch(host) is None:
        raise ValueError("give the name or the address of a host, without a scheme, a port or a path")
    return host


def _proxies(proxies: tuple[str, ...]) -> tuple[str, ...]:
    for proxy in proxies:
        try:
            ip_network(proxy)
        except ValueError as error:
            # A number at the end is a mistyped address.
            if _NAME.fullmatch(proxy) is None or "*" in proxy or proxy.rpartition(".")[2].isdecimal():
                raise ValueError(
                    f"{proxy!r} is no address, network or name of a host, as '10.0.0.7', '10.0.0.0/8' and 'console' are"
                ) from error
    return proxies


def _host_names(names: tuple[str, ...]) -> tuple[str, ...]:
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise ValueError(f"{name!r} is no name of a host, as 'nova.example.com' and '*.example.com' are")
    return names


def _folder(path: Path) -> Path:
    """Refuse a path below a file, which can never be made a folder."""
    for place in (path, *path.parents):
        if place.is_dir():
            break
        if place.exists():
            raise ValueError(f"{str(place)!r} is a file and no folder; give a folder, which may not exist yet")
    return path


OptionalSecret = Annotated[SecretStr | None, BeforeValidator(empty_is_unset)]
OptionalHttpUrl = Annotated[
    Annotated[str, Field(pattern=r"^https?://[^\s/]\S*$")] | None, BeforeValidator(empty_is_unset)
]
PublicUrl = Annotated[Annotated[str, AfterValidator(_public_url)] | None, BeforeValidator(empty_is_unset)]
"""The address of a server as clients know it, without a path; None names none."""
DatabaseUrl = Annotated[Annotated[SecretStr, AfterValidator(_database)] | None, BeforeValidator(empty_is_unset)]
RedisUrl = Annotated[Annotated[SecretStr, AfterValidator(_redis)] | None, BeforeValidator(empty_is_unset)]
BotToken = Annotated[SecretStr, AfterValidator(_token)]
Host = Annotated[str, AfterValidator(_host)]
HostNames = Annotated[tuple[str, ...], AfterValidator(_host_names)]
"""Names without scheme and port; ``*.example.com`` is each below ``example.com``, and ``*`` any."""
Proxies = Annotated[tuple[str, ...], AfterValidator(_proxies)]
"""Addresses, networks and names of hosts."""
Folder = Annotated[Path, AfterValidator(_folder)]
