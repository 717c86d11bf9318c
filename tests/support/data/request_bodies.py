"""The models of the bodies that the routes of an application take, and their parts."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.routing import APIRoute
from pydantic import BaseModel

from api.late_modules import load_all
from nova_workers.domain.agents.rules.entries import models_in


def request_bodies(app: FastAPI) -> set[type[BaseModel]]:
    """Return the models of all bodies."""
    routes = (route for route in load_all(app).routes if isinstance(route, APIRoute) and route.body_field is not None)
    return {
        model
        for route in routes
        if route.body_field is not None
        for model in models_in(route.body_field.field_info.annotation)
    }


def all_parts(model: type[BaseModel]) -> set[type[BaseModel]]:
    """Return a model and all models of its fields, at any depth."""
    found: set[type[BaseModel]] = set()
    waiting = [model]
    while waiting:
        if (part := waiting.pop()) not in found:
            found.add(part)
            waiting.extend(each for field in part.model_fields.values() for each in models_in(field.annotation))
    return found
