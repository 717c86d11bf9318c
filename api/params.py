"""Path and query parameters that many routes share."""

import re
from collections.abc import Callable
from typing import Annotated

from fastapi import Path, Query
from pydantic import AfterValidator, BeforeValidator, StringConstraints

from nova_workers.base.errors import missing
from nova_workers.contracts.agents import AGENT_ID_PATTERN
from nova_workers.contracts.http.datasets import DATASET_NAME_PATTERN, EXAMPLE_KEY_PATTERN
from nova_workers.contracts.http.secrets import SECRET_NAME_PATTERN
from nova_workers.contracts.http.tasks import MAX_TASK_ID
from nova_workers.contracts.orders.policy import POLICY_ID_PATTERN

_ID = re.compile(r"[A-Za-z0-9_-]{1,80}\Z")
_WORKER_ID = re.compile(r"[A-Za-z0-9_-]{1,80}@[A-Za-z0-9._-]{1,255}:[0-9]{1,10}\Z")
_ID_PATTERN = r"^[A-Za-z0-9_-]{1,80}$"
_QUOTE_CHARS = 80
_NUMBER = re.compile(r"[1-9][0-9]{0,9}\Z")


def known_form(kind: str, form: re.Pattern[str] = _ID) -> Callable[[str], str]:
    """Return a check that refuses a malformed id like an unknown one, before it reaches Postgres: it takes no U+0000.

    Args:
        kind: What the id names, for the error.
        form: Of its ids.
    """

    def check(value: str) -> str:
        if form.match(value) is None:
            quoted = value if len(value) <= _QUOTE_CHARS else value[:_QUOTE_CHARS] + "…"
            raise missing(kind, quoted)
        return value

    return check


def _true_or_false(value: object) -> object:
    if isinstance(value, str):
        if value not in ("true", "false"):
            raise ValueError("should be true or false")
        return value == "true"
    return value


def _task_number(value: object) -> int:
    text = str(value)
    number = int(text) if _NUMBER.match(text) else MAX_TASK_ID + 1
    if number > MAX_TASK_ID:
        raise missing("task", text[:_QUOTE_CHARS])
    return number


AgentIdPath = Annotated[str, Path(description="An agent's id."), AfterValidator(known_form("agent"))]
DatasetNamePath = Annotated[
    Annotated[str, StringConstraints(pattern=DATASET_NAME_PATTERN)],
    Path(description="A dataset's name: small letters, digits, _ and -, such as complaints."),
]
DeliveryIdPath = Annotated[str, Path(description="A delivery's id."), AfterValidator(known_form("delivery"))]
DeliveryTargetPath = Annotated[
    Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_:-]{1,120}$")],
    Path(description="The id of a webhook, the name of a channel, or a lane of push notifications."),
]
EvaluationIdPath = Annotated[str, Path(description="An evaluation's id."), AfterValidator(known_form("evaluation"))]
ExampleKeyPath = Annotated[
    Annotated[str, StringConstraints(pattern=EXAMPLE_KEY_PATTERN)], Path(description="An example's key.")
]
FeedbackIdPath = Annotated[str, Path(description="A feedback's id."), AfterValidator(known_form("feedback"))]
FileIdPath = Annotated[str, Path(description="A file's id."), AfterValidator(known_form("file"))]
KeyIdPath = Annotated[str, Path(description="A key's id."), AfterValidator(known_form("key"))]
MemoryIdPath = Annotated[str, Path(description="A memory's id."), AfterValidator(known_form("memory"))]
NoteIdPath = Annotated[str, Path(description="A note's id."), AfterValidator(known_form("note"))]
PairingIdPath = Annotated[str, Path(description="A pairing's id."), AfterValidator(known_form("pairing"))]
OrchestrationIdPath = Annotated[
    str, Path(description="An orchestration's id."), AfterValidator(known_form("orchestration"))
]
OrderIdPath = Annotated[str, Path(description="A work order's trace id."), AfterValidator(known_form("work_order"))]
OrderSecretIdPath = Annotated[str, Path(description="A secret's id."), AfterValidator(known_form("order_secret"))]
PolicyIdPath = Annotated[
    Annotated[str, StringConstraints(pattern=POLICY_ID_PATTERN)],
    Path(description="A policy's id: small letters, digits, _ and -, such as copy_standard."),
]
RolloutIdPath = Annotated[str, Path(description="A rollout's id."), AfterValidator(known_form("rollout"))]
RunListIdPath = Annotated[str, Path(description="A saved list's id."), AfterValidator(known_form("run_list"))]
RunIdPath = Annotated[str, Path(description="A run's id."), AfterValidator(known_form("run"))]
ResourceIdPath = Annotated[str, Path(description="A resource's id."), AfterValidator(known_form("task_resource"))]
SecretNamePath = Annotated[
    Annotated[str, StringConstraints(pattern=SECRET_NAME_PATTERN)],
    Path(description="A secret's name: capital letters, digits and underscores, such as GITHUB_TOKEN."),
]
SessionIdPath = Annotated[str, Path(description="A session's id."), AfterValidator(known_form("session"))]
SkillNamePath = Annotated[str, Path(description="A skill's name."), AfterValidator(known_form("skill"))]
StepIdPath = Annotated[str, Path(description="A step's id."), AfterValidator(known_form("task_step"))]
TaskIdPath = Annotated[int, Path(description="A task's number."), BeforeValidator(_task_number)]
TenantIdPath = Annotated[str, Path(description="A tenant's id."), AfterValidator(known_form("tenant"))]
ThreadIdPath = Annotated[str, Path(description="A thread's id."), AfterValidator(known_form("thread"))]
TurnIdPath = Annotated[str, Path(description="A turn's id."), AfterValidator(known_form("turn"))]
TriggerIdPath = Annotated[str, Path(description="A trigger's id."), AfterValidator(known_form("trigger"))]
WorkerIdPath = Annotated[
    str, Path(description="The id of a worker's process."), AfterValidator(known_form("worker", _WORKER_ID))
]
WebhookIdPath = Annotated[str, Path(description="A webhook's id."), AfterValidator(known_form("webhook"))]

AgentIdQuery = Annotated[
    Annotated[str, StringConstraints(pattern=AGENT_ID_PATTERN, max_length=64)] | None,
    Query(description="Only of this agent."),
]
Flag = Annotated[bool, BeforeValidator(_true_or_false)]
"""A boolean of a query. pydantic takes `yes`, `on`, `1` and their like too."""
MediaQuery = Annotated[Flag, Query(description="Without, images and documents have no base64 data.")]
ThreadIdQuery = Annotated[
    Annotated[str, StringConstraints(pattern=_ID_PATTERN)] | None, Query(description="Only of this thread.")
]
WebhookIdQuery = Annotated[
    Annotated[str, StringConstraints(pattern=_ID_PATTERN)] | None, Query(description="Only what goes to this webhook.")
]
TimeoutQuery = Annotated[
    float | None, Query(gt=0, description="Seconds to wait at most; the server's own bound where that is lower.")
]
