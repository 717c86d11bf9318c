"""Doorbells over Celery: transport, application settings, dispatch."""
