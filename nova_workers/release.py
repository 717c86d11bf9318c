"""The release of the fleet that is installed."""

from functools import cache
from importlib import metadata

__all__ = ["DISTRIBUTION", "release"]

DISTRIBUTION = "nova-workers"


@cache
def release() -> str:
    """Return the version, such as ``0.2.0``; ``from source`` where the package is not installed."""
    try:
        return metadata.version(DISTRIBUTION)
    except metadata.PackageNotFoundError:
        return "from source"
