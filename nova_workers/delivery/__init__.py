"""What goes outside: the outbox's rows on their way to webhooks and other channels."""
