"""The only place that builds and connects things. Everything else is handed what it needs.

A front door imports the module that builds its own process, and with it no more than that process works with: the API
knows no engine, and so loads no model provider's SDK.
"""
