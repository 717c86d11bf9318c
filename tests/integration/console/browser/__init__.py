"""The chat in a real browser, before workers that tests drive by hand, and before a fleet that they kill."""
