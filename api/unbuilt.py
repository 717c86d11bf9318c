"""Imports FastAPI without the validators of its models of an OpenAPI document: 1.6 MB and 60 ms of CPU.

Only the document needs them, which builds them when it is made.
"""

from importlib import import_module

from pydantic import BaseModel, ConfigDict


def import_unbuilt(module: str) -> None:
    """Import a module whose models are built at their first use, whatever their configuration is."""
    config = BaseModel.model_config
    BaseModel.model_config = ConfigDict(defer_build=True)
    try:
        import_module(module)
    finally:
        BaseModel.model_config = config
