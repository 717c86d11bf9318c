"""What a button of a page asks for: carried out, and reported on the page that follows."""

from collections.abc import Awaitable

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.client.resources.runs import Runs
from nova_workers.console.forms import Form, build
from nova_workers.console.rendering import see_other
from nova_workers.contracts.waits import RunAnswer
from nova_workers.errors import Forbidden, NotFound, Rejected, Unauthenticated

__all__ = ["act", "answer_run"]


async def act(request: Request, path: str, action: Awaitable[object], done: str) -> Response:
    """Await a call of the API, then go to a page, which shows `done`, or why the API refused.

    Raises:
        NotFound: There is no such thing, so there is no page of it either.
        Forbidden: The key lacks a scope.
        Unauthenticated: The key is not valid any more.
    """
    try:
        await action
    except (NotFound, Forbidden, Unauthenticated):
        raise
    except Rejected as error:
        return see_other(request, path, flash=error.message, kind="bad")
    return see_other(request, path, flash=done)


async def answer_run(runs: Runs, run_id: str, wait_id: str | None, form: Form) -> None:
    """Answer a question with `text` or `option`, or a call with `decision` (``approve`` or another word)."""
    decision = form.given("decision")
    given = {
        "wait_id": wait_id,
        "text": form.given("text") or form.given("option"),
        "approve": None if decision is None else decision == "approve",
    }
    await runs.answer(run_id, build(RunAnswer, given))
