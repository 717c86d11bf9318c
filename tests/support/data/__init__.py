"""Rows, messages, images and documents that tests use as data."""
