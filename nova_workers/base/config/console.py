"""The settings of the web console, with the evidence for each default."""

from typing import Annotated

from pydantic import Field, SecretStr

from nova_workers.base.config.forms import Count, Host, Proxies, PublicUrl, Seconds
from nova_workers.base.config.sections import Section


class ConsoleSettings(Section):
    """The web console."""

    enabled: bool = True
    """Whether `nova up` starts it."""
    host: Host = "127.0.0.1"
    """Loopback by default: a new console is reachable from this machine only."""
    port: Annotated[int, Field(ge=0, le=65535)] = 8765
    public_url: PublicUrl = None
    """Its address in people's browsers, behind a proxy. With https the cookie is sent over TLS only."""
    secret: Annotated[SecretStr, Field(min_length=32)] | None = None
    """Encrypts the session cookie. Several console processes need the same. Unset: a file under NOVA_HOME."""
    session_s: Seconds = 604_800.0
    """How long a sign-in lasts: a week."""
    idle_s: Annotated[int, Field(ge=60, le=2_592_000)] = 43_200
    """A session without a request ends after this long: twelve hours, over a working day and no night."""
    trusted_proxies: Proxies | None = None
    """Proxies whose X-Forwarded-For the console believes. Unset: those of the API, as where one proxy serves both."""
    failed_sign_ins_per_minute: Count = 10
    """The limit of an address in a process: a person who mistypes a key needs a few."""
    timeout_s: Seconds = 20.0
    """Longest silence of the API in a request of a page: a person does not wait longer."""
