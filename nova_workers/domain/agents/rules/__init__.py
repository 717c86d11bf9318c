"""Agents: the only writer of their configuration."""
