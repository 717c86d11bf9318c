"""Statements on the outbox, sent files and webhooks."""
