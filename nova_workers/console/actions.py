"""What a button of a page asks for: carried out, and reported on the page that follows."""

from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from starlette.requests import Request
from starlette.responses import Response

from nova_workers.base.errors import Forbidden, InvalidInput, NotFound, Rejected, Unauthenticated
from nova_workers.client.resources.feedback import FeedbackCalls
from nova_workers.client.resources.runs import Runs
from nova_workers.console.forms import Form, build
from nova_workers.console.rendering import FlashKind, is_fragment, see_other
from nova_workers.contracts.http.feedback import FeedbackGive, FeedbackView
from nova_workers.contracts.waits import RunAnswer

T = TypeVar("T")


class Done(NamedTuple):
    """What the page after an action says. `path` is that page; None is the one that the button was on."""

    text: str | None
    path: str | None = None
    kind: FlashKind = "good"


async def act(
    request: Request,
    path: str,
    action: Callable[[], Awaitable[T]],
    done: Done | str | Callable[[T], Done],
) -> Response:
    """Carry out an action, then go to a page that reports what came of it, or why it was refused.

    A form that the page's own script sent gets 204, or the refusal itself, which the script shows beside the form.

    Args:
        request: The button's.
        path: The page that the button is on.
        action: Builds the body and calls the API; what either refuses is reported.
        done: The report; a function makes it of what `action` returned.

    Raises:
        NotFound: There is no such thing, so there is no page of it either.
        Forbidden: The key lacks a scope.
        Unauthenticated: The key is not valid any more.
        Rejected: A form of the page's own script is refused.
    """
    try:
        result = await action()
    except (NotFound, Forbidden, Unauthenticated):
        raise
    except Rejected as error:
        if is_fragment(request):
            raise
        return see_other(request, path, flash=error.message, kind="bad")
    if is_fragment(request):
        return Response(status_code=204)
    if isinstance(done, str):
        done = Done(done)
    report = done if isinstance(done, Done) else done(result)
    return see_other(request, report.path or path, flash=report.text, kind=report.kind)


async def answer_run(runs: Runs, run_id: str, wait_id: str | None, form: Form) -> None:
    """Send what a person answered with the fields of `templates/answer.html`.

    Raises:
        InvalidInput: There is no answer in the form.
    """
    approve = form.given("approve")
    text = form.given("option") or form.given("text")
    if approve is None and text is None:
        raise InvalidInput("Write an answer.", field="text")
    given: dict[str, object] = {"wait_id": wait_id, "text": text}
    if approve is not None:
        given |= {"approve": approve == "yes", "remember": approve == "yes" and form.given("remember") is not None}
    await runs.answer(run_id, build(RunAnswer, given))


async def rate_run(calls: FeedbackCalls, run_id: str, form: Form) -> FeedbackView:
    """Give a thumb up or down, with the comment of the form if it has one."""
    given = {"score": form.given("score"), "comment": form.given("comment")}
    return await calls.give(run_id, build(FeedbackGive, given))
