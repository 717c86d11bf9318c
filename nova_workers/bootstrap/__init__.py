"""The only place that builds and connects services. Everything else receives its dependencies.

Each kind of process imports only the module that builds it, and so loads only what it uses: the API knows no engine and
loads no model provider's SDK.
"""
