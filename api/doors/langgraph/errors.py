"""Errors in the form that clients of the protocol read."""

from __future__ import annotations

from typing import Any

from nova_workers.contracts.bodies import Problem


def error_document(problem: Problem) -> dict[str, Any]:
    """Return a problem with its text as `detail`; `code` and `errors` are those of the fleet."""
    document: dict[str, Any] = {"detail": problem.detail, "code": problem.code}
    fields = [
        {"field": error.get("field"), "message": error.get("message", problem.detail)} for error in problem.errors
    ]
    if fields:
        document["errors"] = fields
        document["detail"] = f"{problem.detail} {'; '.join(str(each['message']) for each in fields)}".strip()
    return document
