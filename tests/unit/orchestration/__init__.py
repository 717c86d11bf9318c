"""Agents that run agents: what needs no server."""
