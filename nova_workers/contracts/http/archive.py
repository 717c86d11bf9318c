"""The HTTP contract of exporting and importing a tenant's workspace."""

from typing import Final, Literal

from pydantic import Field

from nova_workers.contracts.bodies import View

ARCHIVE_FORMAT: Final = 1
"""Incremented when older versions cannot read the new format."""

MEDIA_TYPE: Final = "application/x-ndjson"
"""One JSON object per line: ``{"table": …, "agent": …, "thread": …, "row": {…}}``. The first line has the table
``archive`` and the format; the last has the table ``end``, without which the archive is incomplete."""


class ImportResult(View):
    """What an import wrote."""

    status: Literal["imported"] = "imported"
    written: dict[str, int] = Field(default_factory=dict[str, int])
    """Rows by table."""
    kept: dict[str, int] = Field(default_factory=dict[str, int])
    """Rows by table that existed already and were not changed."""
    secrets: list[str] = Field(default_factory=list[str])
    """Names of secrets whose values must be set again, since an archive does not contain them."""
