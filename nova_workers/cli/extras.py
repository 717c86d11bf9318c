"""Extras of the package that a command may need."""

from importlib.util import find_spec

from nova_workers.base.errors import ConfigurationError

EXTRA_MODULES = {
    "fleet": "celery",
    # `nova up` reports missing embedded servers itself: it needs none if both are given by URL.
    "local": "celery",
    "mcp": "mcp",
    "acp": "acp",
    "console": "jinja2",
}
"""A module of each extra that nothing else installs."""


def require_extra(extra: str, what: str) -> None:
    """Return if an extra is installed.

    Raises:
        ConfigurationError: It is not; the message has the command that installs it.
    """
    if find_spec(EXTRA_MODULES[extra]) is None:
        raise ConfigurationError(
            f"`{what}` needs the extra {extra!r}, which is not installed: pip install 'nova-workers[{extra}]'"
        )
