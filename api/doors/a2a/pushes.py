"""Push notification configurations: addresses that get the changes of a task."""

from __future__ import annotations

import hashlib

from a2a.types import TaskPushNotificationConfig
from pydantic import ValidationError

from nova_workers.base.errors import InvalidInput
from nova_workers.base.ids import new_id
from nova_workers.contracts.pushes import PushConfigCreate, PushConfigView


def push_of(config: TaskPushNotificationConfig, *, of_message: str | None = None, within: str = "") -> PushConfigCreate:
    """Return a configuration as an address of a run.

    Args:
        config: As the client gave it. One without an id gets one.
        of_message: The name of the message that it came with: a message that is sent again brings the same one.
        within: The field of the request that has it, with a dot.

    Raises:
        InvalidInput: It is refused; names the field.
    """
    made = new_id("psh") if of_message is None else f"psh_{hashlib.sha256(of_message.encode()).hexdigest()[:26]}"
    given = {"name": config.id or made, "url": config.url, "token": config.token or None}
    if config.HasField("authentication"):
        given |= {"scheme": config.authentication.scheme, "credentials": config.authentication.credentials}
    try:
        return PushConfigCreate.model_validate(given)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = within + ".".join(_FIELDS.get(str(part), str(part)) for part in first["loc"])
        raise InvalidInput(f"{field or within}: {first['msg']}.", field=field.rstrip(".") or None) from None


def config_of(push: PushConfigView) -> TaskPushNotificationConfig:
    """Return the address of a run as a configuration. The client's secrets are not returned."""
    return TaskPushNotificationConfig(id=push.name, task_id=push.run_id, url=push.url)


_FIELDS = {"name": "id", "scheme": "authentication.scheme", "credentials": "authentication.credentials"}
