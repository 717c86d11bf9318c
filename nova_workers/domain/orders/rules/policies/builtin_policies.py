"""The policies that every tenant has: documents in ``builtin/``."""

from functools import cache
from importlib import import_module
from importlib.resources import files
from types import MappingProxyType

from nova_workers.contracts.orders import PolicyDocument

_YAML = "yaml"
"""1 MB of an idle API."""


@cache
def builtin_policies() -> MappingProxyType[str, PolicyDocument]:
    """Return the built-in policies by id. Read once per process."""
    yaml = import_module(_YAML)
    documents = (
        PolicyDocument.from_wire(yaml.safe_load(file.read_text("utf-8")))
        for file in files("nova_workers.domain.orders.rules.policies").joinpath("builtin").iterdir()
        if file.name.endswith(".yaml")
    )
    return MappingProxyType({document.id: document for document in sorted(documents, key=lambda each: each.id)})
