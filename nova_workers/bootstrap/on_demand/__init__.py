"""Builds engines. They import their libraries, so only `nova_workers.bootstrap.deferred` imports them, by name."""
