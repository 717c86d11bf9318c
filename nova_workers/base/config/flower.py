"""The settings of Flower, with the evidence for each default."""

from typing import Annotated

from pydantic import Field, SecretStr

from nova_workers.base.config.sections import Section


class FlowerSettings(Section):
    """Flower, the view of Celery's tasks."""

    password: Annotated[SecretStr, Field(min_length=12)] | None = None
    """The password of its user ``nova``. Unset: one in a file under NOVA_HOME, made once."""
