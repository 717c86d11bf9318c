"""The console's parts that need no server."""
