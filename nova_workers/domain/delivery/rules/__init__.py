"""Sends the rows of the outbox to webhooks and other channels."""
