"""Server-sent events: one subscription per API process serves all its open streams."""
