"""A tenant's workspace on its way out of a fleet, or into one."""

from typing import Final, Literal

from pydantic import Field

from nova_workers.contracts.bodies import View

__all__ = ["ARCHIVE_FORMAT", "MEDIA_TYPE", "ImportResult"]

ARCHIVE_FORMAT: Final = 1
"""Goes up when an older version could not read what a newer one writes."""

MEDIA_TYPE: Final = "application/x-ndjson"
"""One JSON object a line: ``{"table": …, "agent": …, "thread": …, "row": {…}}``. The first line is of the table
``archive`` and has the format; the last is of the table ``end``: without it the archive is not whole."""


class ImportResult(View):
    """What an import wrote."""

    status: Literal["imported"] = "imported"
    written: dict[str, int] = Field(default_factory=dict[str, int])
    """Rows by table."""
    kept: dict[str, int] = Field(default_factory=dict[str, int])
    """Rows by table that were there already, and were left as they are."""
    secrets: list[str] = Field(default_factory=list[str])
    """Names of secrets whose values are to be set anew: an archive has none."""
