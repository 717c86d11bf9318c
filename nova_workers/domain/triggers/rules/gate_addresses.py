"""Which addresses a gate may request: those that agents' tools may fetch."""

from importlib import import_module
from typing import Final

from nova_workers.base.config import ToolSettings
from nova_workers.base.errors import InvalidInput, OutboundFailed
from nova_workers.base.outbound.rules import OutboundRules
from nova_workers.contracts.http.triggers import Gate, UrlGate

_REQUESTS: Final = "nova_workers.base.outbound.requests"
"""Imported by name with the first address of a gate: the API sends no request, and a client of HTTP takes 2 MB."""

_GATE_BYTES = 1_000_000
"""Maximum bytes read of a response."""


def gate_rules(tools: ToolSettings, *, timeout_s: float) -> OutboundRules:
    """Return which addresses gates may request, and the limits."""
    return OutboundRules(
        ports=tools.fetch_ports,
        allow_hosts=tools.fetch_allow_hosts,
        max_redirects=tools.fetch_max_redirects,
        max_bytes=_GATE_BYTES,
        timeout_s=timeout_s,
        connect_timeout_s=timeout_s,
    )


def check_gate_address(gate: Gate | None, rules: OutboundRules) -> None:
    """Refuse a gate whose address is never allowed. What a name resolves to may change: each request checks it.

    Raises:
        InvalidInput: It would never open.
    """
    if not isinstance(gate, UrlGate):
        return
    try:
        import_module(_REQUESTS).check_address(gate.url, rules)
    except OutboundFailed as error:
        hint = "An operator admits a host with NOVA_TOOLS__FETCH_ALLOW_HOSTS."
        raise InvalidInput(f"gate.url: the gate would never open. {error.message} {hint}", field="gate.url") from error
