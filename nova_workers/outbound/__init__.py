"""Guarded HTTP requests to addresses that agents and tenants name."""

from nova_workers.outbound.bounded import ResponseBounds, bound_responses
from nova_workers.outbound.requests import Outbound, OutboundResponse, OutboundRules

__all__ = ["Outbound", "OutboundResponse", "OutboundRules", "ResponseBounds", "bound_responses"]
