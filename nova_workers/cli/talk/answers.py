"""Answers of a person to what a run asks: how they are asked for, and what a typed line says."""

from collections.abc import Sequence

from nova_workers.base.errors import InvalidInput
from nova_workers.cli.terminal.output import short
from nova_workers.contracts.events import Waiting
from nova_workers.contracts.waits import RunAnswer

OTHER = "…"
"""Stands for an answer that is none of the options."""

_YES = frozenset({"y", "yes"})
_NO = frozenset({"n", "no"})
_ALWAYS = frozenset({"a", "always"})


def choices(options: Sequence[str], *, only_options: bool, approval: bool, lasting: bool) -> str:
    """Return the answers that there are, as in ``yes / no``; empty if any text may be one.

    Args:
        options: Those of a question.
        only_options: Whether the question takes no other answer.
        approval: Whether the run asks for permission.
        lasting: Whether a permission may hold for all agents of an orchestration from now on.
    """
    if approval:
        return "yes | no | always" if lasting else "yes | no"
    return " | ".join(options if only_options or not options else [*options, OTHER])


def wait_line(event: Waiting, *, lasting: bool = False) -> str:
    """Return in one line what a run waits for. `lasting`: whether a permission may be one for all agents."""
    if event.question:
        approval = event.kind == "approval"
        answers = choices(event.options, only_options=event.only_options, approval=approval, lasting=lasting)
        return f"⏸ asks: {short(event.question, 500)}" + (f" [{answers}]" if answers else "")
    if event.agent_id:
        return f"⏸ waits for {event.agent_id}"
    return f"⏸ waits until {event.until}" if event.until else f"⏸ waits ({event.kind})"


def read_answer(
    text: str, *, options: Sequence[str] = (), only_options: bool = False, approval: bool, lasting: bool = False
) -> RunAnswer:
    """Return the answer that a typed line gives. Only an explicit word permits or refuses a call.

    Args:
        text: The line. The number of an option stands for the option.
        options: Those of the question.
        only_options: Whether the question takes no other answer.
        approval: Whether the run asks for permission.
        lasting: Whether ``always`` is an answer.

    Raises:
        InvalidInput: The line is no answer.
    """
    typed = text.strip()
    if approval:
        return _verdict(typed, lasting=lasting)
    if not typed:
        raise InvalidInput("An answer is text that is not blank.")
    if not options or typed in options:
        return RunAnswer(text=typed)
    if typed.isdecimal() and 1 <= int(typed) <= len(options):
        return RunAnswer(text=options[int(typed) - 1])
    fitting = [option for option in options if option.casefold() == typed.casefold()]
    if len(fitting) == 1:
        return RunAnswer(text=fitting[0])
    if only_options:
        raise InvalidInput(f"{short(typed)!r} is none of {', '.join(options)}, and was not sent")
    return RunAnswer(text=typed)


def _verdict(typed: str, *, lasting: bool) -> RunAnswer:
    word = typed.casefold()
    if lasting and word in _ALWAYS:
        return RunAnswer(approve=True, remember=True)
    if word in _YES or word in _NO:
        return RunAnswer(approve=word in _YES)
    words = "none of yes, no and always" if lasting else "neither yes nor no"
    raise InvalidInput(f"{short(typed)!r} is {words}, and was not sent")
