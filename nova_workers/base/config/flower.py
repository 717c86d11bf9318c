"""The settings of Flower, with the evidence for each default."""

from typing import Annotated

from pydantic import Field, SecretStr

from nova_workers.base.config.sections import Section

__all__ = ["FlowerSettings"]


class FlowerSettings(Section):
    """Flower, the view of Celery's tasks."""

    password: Annotated[SecretStr, Field(min_length=12)] | None = None
    """Of its user ``nova``. Unset: a file under NOVA_HOME, made once."""
