"""The console as a process: what uvicorn serves."""

import os
import sys
from pathlib import Path

from starlette.applications import Starlette

from nova_workers.base.clock import SystemClock
from nova_workers.base.config import ConsoleSettings, load_settings
from nova_workers.base.errors import ConfigurationError
from nova_workers.base.observability.logging import configure_logging
from nova_workers.console.app import build_console
from nova_workers.console.sessions import LoginLinks, read_secret
from nova_workers.console.state import ConsoleState

LOGIN_FILE = "console.login"
"""Under NOVA_HOME: the one-time login of the process that started last."""

HOW_TO_SIGN_IN = "for a one-time login, run `nova console --login` on a terminal"

_ANY_ADDRESS = frozenset({"0.0.0.0", "::", ""})  # noqa: S104 - compared, not bound


def create_console() -> Starlette:
    """Return the console as the environment describes it; the factory for uvicorn. A terminal gets a one-time login.

    NOVA_API_URL is the API as this process reaches it. With NOVA_API_KEY there are one-time logins.

    Raises:
        ConfigurationError: A variable is missing or cannot be used.
    """
    settings = load_settings()
    configure_logging(settings.telemetry, "console")
    api_url = os.environ.get("NOVA_API_URL") or f"http://{settings.api.host}:{settings.api.port}"
    app = build_console(settings, api_url=api_url, login_key=os.environ.get("NOVA_API_KEY") or None)
    state: ConsoleState = app.state.console
    address = _address(settings.console)
    sys.stderr.write(f"nova: the console is at {address}\n")
    if state.login_key is not None:
        link = f"{address}/login?token={state.links.make()}"
        _write_private(settings.home / LOGIN_FILE, link)
        # Other outputs are kept, as logs are, and read by more people than the one who started this.
        shown = f"sign in once, within 15 minutes: {link}" if sys.stderr.isatty() else HOW_TO_SIGN_IN
        sys.stderr.write(f"nova: {shown}\n")
    return app


def login_link(address: str | None = None) -> str:
    """Return a new one-time login for the running console of this home.

    Raises:
        ConfigurationError: The console's secret cannot be read.
    """
    settings = load_settings()
    secret = read_secret(settings.console, settings.home)
    links = LoginLinks(secret, settings.home, SystemClock())
    return f"{address or _address(settings.console)}/login?token={links.make()}"


def _address(settings: ConsoleSettings) -> str:
    if settings.public_url is not None:
        return settings.public_url
    host = "127.0.0.1" if settings.host in _ANY_ADDRESS else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{settings.port}"


def _write_private(path: Path, text: str) -> None:
    try:
        path.unlink(missing_ok=True)
        path.touch(mode=0o600)
        path.write_text(text + "\n", encoding="ascii")
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written ({error}). Set NOVA_HOME to a folder that can.") from error
