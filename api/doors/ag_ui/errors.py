"""Errors in the form of the protocol: that of the event that ends a run which failed."""

from __future__ import annotations

from typing import Any

from nova_workers.contracts.bodies import Problem


def error_document(problem: Problem) -> dict[str, Any]:
    """Return a problem as a `RUN_ERROR`; its metadata has the fields that are wrong."""
    document: dict[str, Any] = {"type": "RUN_ERROR", "message": problem.detail, "code": problem.code}
    fields = [
        {"field": error.get("field"), "message": error.get("message", problem.detail)} for error in problem.errors
    ]
    if fields:
        document["metadata"] = {"errors": fields}
    return document
