"""Server-sent events: one subscription an API process serves all its open streams."""
