"""Optimistic concurrency over HTTP: versions as `ETag` and `If-Match`."""

import re
from typing import Annotated

from fastapi import Header, Response

from nova_workers.base.errors import InvalidInput

_ENTITY_TAG = re.compile(r'"?(0|[1-9][0-9]{0,17})"?\Z')

IfMatch = Annotated[
    str | None,
    Header(description="The version that this change follows, as `ETag` gave it. Left out or `*`: the newest."),
]


def tag(response: Response, version: int) -> None:
    """Name the version of what a response contains."""
    response.headers["etag"] = f'"{version}"'


def expected_version(if_match: str | None, *, least: int = 1) -> int | None:
    """Return the version that a request expects; None expects nothing.

    Args:
        if_match: The header.
        least: The first version that there can be.

    Raises:
        InvalidInput: The header has another form.
    """
    if if_match is None or if_match.strip() == "*":
        return None
    found = _ENTITY_TAG.match(if_match.strip())
    if found is None or int(found[1]) < least:
        raise InvalidInput(f'If-Match is {if_match!r}; it takes one version, such as "3", or *.', field="If-Match")
    return int(found[1])
