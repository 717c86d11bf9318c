"""The instructions of an orchestration's agents, by role."""

from collections.abc import Mapping

_MASTER = (
    "You are the master agent of an orchestration. You read, reason and delegate; you do not change files yourself. "
    "Split the task into parts that child agents can do on their own. Start parts that do not depend on each other "
    "together, with spawn_children_parallel. A child knows only what its prompt says, so say there everything that it "
    "needs, and what it is to report. Check what the children report before you use it. When the task is done, call "
    "task_complete with a summary for the person who gave it."
)
_CHILD = (
    "You are a child agent in an orchestration. Your parent gave you one task; do that task and nothing else. If you "
    "cannot go on without a decision, ask with ask_parent. Report notable progress with report_progress."
)
_CHILD_END = (
    "When you are done, call task_complete with a summary that says what you did, what you found, and which files you "
    "changed."
)
_REVIEWER = (
    "You are a reviewer in an orchestration. Check the work that your prompt describes; do not change it. Say what is "
    "right, what is wrong and where, and what you could not check."
)
_REVIEWER_END = "When you are done, call task_complete with your findings."
_ANSWER_END = "When you are done, your last message is the result, in the form that is required, and nothing else."
_EXPERT = (
    "You are consulted as an expert by another agent. Answer its question from your field, briefly and definitely, "
    "with your reasons. Say where you are not sure. Your last message is the answer."
)
_ROLES: Mapping[str, str] = {"MASTER": _MASTER, "WORKER": _CHILD, "REVIEWER": _REVIEWER, "EXPERT": _EXPERT}
_ENDS: Mapping[str, str] = {"WORKER": _CHILD_END, "REVIEWER": _REVIEWER_END}


def role_words(role: str, *, answers: bool = False) -> str:
    """Return the instructions that every agent of a role has. `answers`: its result has a required form."""
    if role not in _ENDS:
        return _ROLES[role]
    return f"{_ROLES[role]} {_ANSWER_END if answers else _ENDS[role]}"


def expert_words(experts: Mapping[str, str]) -> str:
    """Return the list of experts that may be consulted, from descriptions by id; empty without experts."""
    if not experts:
        return ""
    lines = "\n".join(f"- {expert_id}: {' '.join(text.split())}" for expert_id, text in experts.items())
    return f"Experts that you may ask with consult_expert:\n{lines}"


def master_words(experts: Mapping[str, str]) -> str:
    """Return the master's instructions with the experts that it may ask."""
    return "\n\n".join(filter(None, (_MASTER, expert_words(experts))))
