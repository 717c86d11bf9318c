"""What the signed-in key may do: a page leaves out every button, form and link that could only be refused.

Templates ask `may(address)` with the address that a form goes to, or that of the page with the form. The API decides
again: what is missing here is a button that ends in a refusal, and never a right.
"""

import re
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from nova_workers.contracts.http.scopes import Scope, with_included

_NEEDS: Final[tuple[tuple[str, Scope | None], ...]] = (
    ("/(login|logout|theme)", None),
    ("/runs/lists", "runs:read"),
    ("/(runs|chat)/.+/rate", "feedback"),
    # An answer goes to the run that asked.
    ("/inbox/[^/]+/answer", "runs"),
    ("/work-orders/[^/]+/review", "workspace"),
    ("/orchestrations/configuration", "agents"),
    ("/agents/[^/]+/try", "runs"),
    ("/tenant/(pause|resume)", "pause"),
    ("/secrets/~rotate", "operator"),
    ("/(chat|runs|orchestrations|evaluations|datasets)", "runs"),
    ("/(agents|tenant)", "agents"),
    ("/(tasks|notes|files|memories|triggers|inbox|skills|webhooks)", "workspace"),
    ("/(keys|sessions)", "keys"),
    ("/secrets", "secrets"),
    ("/fleet", "operator"),
)
"""The scope that a form needs, by the beginning of the address it goes to; the first that fits is meant."""

_held: ContextVar[frozenset[str] | None] = ContextVar("console_scopes", default=None)


def needed(address: str) -> Scope | None:
    """Return the scope that a form to an address needs; None if every key may send it.

    Raises:
        LookupError: The table has no line for it.
    """
    for pattern, scope in _NEEDS:
        if re.match(rf"{pattern}(?=[/?]|$)", address):
            return scope
    raise LookupError(f"{address!r} has no line in the table of what forms need.")


def may(address: str) -> bool:
    """Return whether the key of this request may send a form to an address; true where its scopes are unknown."""
    held, scope = _held.get(), needed(address)
    return held is None or scope is None or scope in held


@contextmanager
def holding(scopes: Sequence[str] | None) -> Generator[None]:
    """Make pages for a key with these scopes; None: they are unknown."""
    token = _held.set(None if scopes is None else with_included(scopes))
    try:
        yield
    finally:
        _held.reset(token)
