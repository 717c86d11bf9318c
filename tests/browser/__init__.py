"""The console in a real browser, before a real fleet."""
