"""The client for programs without an event loop: generated from the async one, but for `connection` and `paging`."""
