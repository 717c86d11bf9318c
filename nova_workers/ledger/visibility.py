"""Which tenant's rows the statements of a context see, where the database enforces it.

A request is bound to the tenant of its key, and what it starts inherits that. There a context that is bound to nothing
has no database: a forgotten binding is an error, and never the rows of all tenants. A worker serves all tenants, and
binds the calls of agents' tools.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from contextvars import ContextVar

_ALL = ""

_visible: ContextVar[str | None] = ContextVar("visible_tenant", default=None)


def see_tenant(tenant_id: str) -> None:
    """Show the statements of this context, from now on, the rows of one tenant."""
    _visible.set(tenant_id)


def see_all_tenants() -> None:
    """Show the statements of this context, from now on, the rows of all tenants."""
    _visible.set(_ALL)


@contextmanager
def one_tenant(tenant_id: str) -> Generator[None]:
    """Show the statements of a block the rows of one tenant."""
    token = _visible.set(tenant_id)
    try:
        yield
    finally:
        _visible.reset(token)


def bound_tenant() -> str | None:
    """Return the tenant of this context; None for all tenants, which is also where nothing is bound."""
    return _visible.get() or None


@contextmanager
def all_tenants() -> Generator[None]:
    """Show the statements of a block the rows of all tenants."""
    token = _visible.set(_ALL)
    try:
        yield
    finally:
        _visible.reset(token)


def visible_tenant() -> str | None:
    """Return the tenant of this context; None for all tenants.

    Raises:
        RuntimeError: The context is bound to nothing, which is a defect.
    """
    tenant_id = _visible.get()
    if tenant_id is None:
        raise RuntimeError("No tenant is bound to this context: call see_tenant() or all_tenants() first.")
    return tenant_id or None
