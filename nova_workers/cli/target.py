"""The fleet that a command uses, and the key."""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from nova_workers.base.errors import ConfigurationError
from nova_workers.cli.stored_sessions import read_session

if TYPE_CHECKING:
    from nova_workers.base.config import Settings
    from nova_workers.client.client import NovaClient

STATE_FILE = "nova.json"
"""Under NOVA_HOME: the processes of `nova up` and their addresses."""

KEY_FILE = "api_key"
"""Under NOVA_HOME: the first key, which `nova up` creates."""

_CONFIG = "nova_workers.base.config"
_CLIENT = "nova_workers.client.client"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True)
class Target:
    """An API and the key for it.

    Attributes:
        url_source: The source of the URL, as text.
        key_source: The source of the key, as text; without a key, how to give one.
        session_id: The person's session that the key is of, after `nova login`.
    """

    url: str
    api_key: str | None
    url_source: str
    key_source: str
    session_id: str | None = None

    def client(self) -> NovaClient:
        """Return a client of the API with the key. The caller closes it."""
        return client_for(self.url, self.api_key, self.session_id)


@dataclass(frozen=True, slots=True)
class Servers:
    """The URLs of Postgres and Redis; None if not found."""

    database_url: str | None
    redis_url: str | None


def read_settings() -> Settings:
    """Read the settings from the environment, for what most commands do not need: it imports all of them, in 0.1 s.

    Raises:
        ConfigurationError: A variable has the wrong form; the message names each.
    """
    return import_module(_CONFIG).load_settings()


def find_servers(settings: Settings) -> Servers:
    """Return the servers that the environment names, else those of a `nova up` in this home."""
    state = read_state(settings.home)

    def found(given: SecretStr | None, key: str) -> str | None:
        if given is not None:
            return given.get_secret_value()
        value = state.get(key)
        return value if isinstance(value, str) and value else None

    return Servers(found(settings.database_url, "database_url"), found(settings.redis_url, "redis_url"))


def client_for(url: str, api_key: str | None, session_id: str | None) -> NovaClient:
    """Return a client of an API; with a session, whose requests are refused once that has ended.

    It is imported now: commands that only look for servers, such as `nova migrate`, need none.
    """
    made: NovaClient = import_module(_CLIENT).NovaClient(url, api_key)
    return made.with_key(api_key, session_id=session_id)


def find_target(home: Path, *, api_url: str | None, api_key: str | None, with_session: bool = True) -> Target:
    """Return the fleet that the options, the environment or the files of `nova up` name, and the key for it.

    The key that is given is used, else that of a session of `nova login` at this API, else that of the key file. The
    key file belongs to the fleet of this home: it is never sent to another host.

    Args:
        home: NOVA_HOME.
        api_url: From ``--api-url`` or NOVA_API_URL.
        api_key: From ``--api-key`` or NOVA_API_KEY.
        with_session: Whether the key may be that of a person's session. A process that goes on has a key of its own.

    Raises:
        ConfigurationError: The URL has no usable form, or a file cannot be read.
    """
    url, url_source = _find_url(home, api_url)
    host = _checked_host(url)
    url = url.rstrip("/")
    if api_key:
        return Target(url, api_key.strip(), url_source, "--api-key or NOVA_API_KEY")
    session = read_session(url) if with_session else None
    if session is not None:
        source = f"the session of {session.name} by `nova login`; run it again once that has ended"
        return Target(url, session.api_key, url_source, source, session.session_id)
    path = home / KEY_FILE
    if api_url is not None and host not in _LOOPBACK:
        missing = (
            f"none: give --api-key or NOVA_API_KEY, or run `nova login` ({path} is only for the fleet of this machine)"
        )
        return Target(url, None, url_source, missing)
    found = _read(path)
    if not found:
        return Target(
            url, None, url_source, f"none: give --api-key or NOVA_API_KEY, or run `nova login` ({path} does not exist)"
        )
    return Target(url, found, url_source, str(path))


def read_state(home: Path) -> dict[str, Any]:
    """Return the state that `nova up` wrote, or an empty one if it never ran.

    Raises:
        ConfigurationError: The file is damaged.
    """
    path = home / STATE_FILE
    text = _read(path)
    if not text:
        return {}
    try:
        state = json.loads(text)
    except json.JSONDecodeError as error:
        raise ConfigurationError(f"{path} is damaged ({error}). Delete it and run `nova up` again.") from error
    return state if isinstance(state, dict) else {}


def _find_url(home: Path, api_url: str | None) -> tuple[str, str]:
    if api_url:
        return api_url, "--api-url or NOVA_API_URL"
    state_url = read_state(home).get("api_url")
    if isinstance(state_url, str) and state_url:
        return state_url, str(home / STATE_FILE)
    settings = read_settings()
    return f"http://{settings.api.host}:{settings.api.port}", "the default; no `nova up` has run in this home"


def _checked_host(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise ConfigurationError(f"{url!r} is not a URL ({error}); expected http://host:port") from error
    if parts.scheme not in ("http", "https") or not host or port == 0:
        raise ConfigurationError(f"{url!r} is not the URL of an API; expected http://host:port")
    return host


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path} cannot be read ({error}). Give --api-url and --api-key instead.") from error
