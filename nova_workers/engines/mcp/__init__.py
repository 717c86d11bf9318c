"""Connections to MCP servers, shared by the turns of a process, and their tools."""
