"""Statements on the outbox: deliveries, and the leases of those that are being sent."""
