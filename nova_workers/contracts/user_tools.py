"""What a worker and the process that runs tools of users tell each other, beside what MCP has words for."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel, ConfigDict

CALL_CONTEXT: Final = "nova/context"
"""Key in a request's ``_meta`` with the `CallContext`."""
QUESTION: Final = "nova/question"
"""Key in a result's ``_meta``: the tool asks a person, and is to be called again with the answer. The value has the
fields of a question (`nova_workers.contracts.waits.AskUser`)."""
RETIRES: Final = "nova/retires"
"""Key in a result's ``_meta``: the process should get no further call, such as because a call in it cannot be ended."""


class GivenAnswer(BaseModel):
    """What a person answered to a question of a tool."""

    model_config = ConfigDict(defer_build=True, frozen=True, hide_input_in_errors=True)

    question: str
    text: str | None = None
    """None if no answer was given in time."""


class CallContext(BaseModel):
    """The context of a call, as a worker gives it to the process of a tool."""

    model_config = ConfigDict(defer_build=True, frozen=True, hide_input_in_errors=True)

    tenant_id: str = ""
    agent_id: str = ""
    thread_id: str = ""
    run_id: str = ""
    idempotency_key: str | None = None
    directory: str | None = None
    """The agent's working directory, if it works with files."""
    secrets: dict[str, str] = {}
    """The values that the grant names."""
    answers: tuple[GivenAnswer, ...] = ()
    """To the questions that the call has asked, in their order: then it is made again."""


class ListedTool(BaseModel):
    """A tool of users, as its process lists it."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    name: str
    description: str
    input_schema: dict[str, Any]
    idempotent: bool = False
    read_only: bool = False
    needs_approval: bool = False
    timeout_s: float = 60.0
    concurrency: int | None = None
    place: str = ""
    """Where it is written, as ``file:line``."""


class ListedAgent(BaseModel):
    """An agent in Python, as its process lists it."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    name: str
    description: str = ""
    place: str = ""
    """Where it is written, as ``file:line``."""


class ToolListing(BaseModel):
    """All tools, agents, effects and evaluators of a project or module, or why there is none."""

    model_config = ConfigDict(defer_build=True, frozen=True)

    tools: tuple[ListedTool, ...] = ()
    agents: tuple[ListedAgent, ...] = ()
    effects: tuple[ListedTool, ...] = ()
    """What follows runs, each called with an `EndedRun`."""
    evaluators: tuple[ListedTool, ...] = ()
    """What judges answers of evaluations, each called with a `JudgedAnswer`."""
    problem: str | None = None
    """What is wrong, with file and line; then there are none."""
