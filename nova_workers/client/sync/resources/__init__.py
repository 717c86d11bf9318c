# Generated from nova_workers/client/resources/__init__.py by `make format`: change that file instead.
"""The resources of the API, one module each."""
