"""Drawings as SVG, made on the server, each with its content as text."""
