"""Values of MCP: the servers that people name in configurations."""
