"""Validates a turn's final answer against the caller's schema."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from nova_workers.base.errors import EngineFailure
from nova_workers.base.json_schemas import InvalidSchema, JsonSchema, json_in
from nova_workers.contracts.content import Message, text_block

_REPAIRS = 1
_MAX_PROBLEM_CHARS = 1_000


def answer_request(schema: Mapping[str, Any]) -> str:
    """Return a prompt that asks the model for such an answer, for providers without a parameter for it."""
    return (
        "Your final answer must be nothing but JSON, without a code fence, that fulfils this JSON schema:\n"
        f"{orjson.dumps(schema).decode()}"
    )


class AnswerCheck:
    """Checks answers, and asks once for a correction.

    Attributes:
        value: The last valid answer as a value.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """Take the schema.

        Raises:
            EngineFailure: It is not a JSON schema.
        """
        try:
            self._schema = JsonSchema(schema)
        except InvalidSchema as error:
            raise EngineFailure(
                f"The output schema is not a JSON schema: {error.why}"[:_MAX_PROBLEM_CHARS],
                kind="unknown",
                retryable=False,
            ) from error
        self._repairs = 0
        self.value: Any = None

    async def repair(self, answer: str) -> Message | None:
        """Return the message that asks the model to correct its answer; None if the answer is valid.

        Raises:
            EngineFailure: The corrected answer is invalid, too.
        """
        problem = await self._problem(answer)
        if problem is None:
            return None
        if self._repairs == _REPAIRS:
            raise EngineFailure(
                f"The answer does not fulfil the output schema: {problem}", kind="model_error", retryable=True
            )
        self._repairs += 1
        return Message(
            "user",
            (
                text_block(
                    f"Your answer does not fulfil the schema that it must have: {problem}\n"
                    "Answer again, with nothing but JSON that fulfils the schema."
                ),
            ),
        )

    async def _problem(self, answer: str) -> str | None:
        try:
            values = json_in(answer)
        except orjson.JSONDecodeError as error:
            return f"it is no JSON ({error})"
        found: list[str] = []
        for value in values:
            problem = next(iter(await self._schema.problems(value)), None)
            if problem is None:
                self.value = value
                return None
            found.append(f"at {problem.place}: {problem.message}"[:_MAX_PROBLEM_CHARS])
        return found[0]
