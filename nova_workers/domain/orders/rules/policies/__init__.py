"""Policies of work orders: the built-in ones, those of tenants, and how their models are ordered."""
