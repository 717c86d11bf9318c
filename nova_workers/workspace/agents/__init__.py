"""Agents: the one door through which their configuration is written."""
