"""What a vendor's program gets of the worker's environment."""

from collections.abc import Mapping

_INHERITED = frozenset(
    {
        "PATH",
        "LANG",
        "LC_ALL",
        "LC_CTYPE",
        "TZ",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "NODE_EXTRA_CA_CERTS",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
    }
)
"""The only variables of the worker's environment that a program gets."""


def inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of an environment that a program may have."""
    return {name: value for name, value in environment.items() if name in _INHERITED}
