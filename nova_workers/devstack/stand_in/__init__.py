"""The local stand-in for a model, on the Anthropic wire."""
