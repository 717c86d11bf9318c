"""Headers that more than one call sends."""

from nova_workers.base.ids import new_id


def idempotency(key: str | None) -> dict[str, str]:
    """Return the Idempotency-Key of a request, generated unless it is given."""
    return {"Idempotency-Key": key or new_id("evt")}


def if_match(version: int | None) -> dict[str, str]:
    """Return the condition that a thing still has a version; None sets none."""
    return {} if version is None else {"If-Match": f'"{version}"'}
