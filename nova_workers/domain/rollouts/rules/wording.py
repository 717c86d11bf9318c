"""What people read of a rollout. Pure."""

from __future__ import annotations

from nova_workers.contracts.http.rollouts import RolloutBreach, RolloutView

_MEASURES = {
    "failure": ("failed runs", "{:.1%}"),
    "cost": ("cost of a run", "{:.4f} $"),
    "latency": ("duration of a run", "{:.2f} s"),
    "feedback": ("score of a run", "{:+.2f}"),
    "judge": ("judge's score of a run", "{:.2f}"),
}


def describe_breach(rollout: RolloutView, breach: RolloutBreach) -> str:
    """Return why a guardrail stopped a candidate, with its figures."""
    what, form = _MEASURES[breach.measure]
    return (
        f"Guardrail {breach.measure}: {what} {form.format(breach.candidate_mean)} in {breach.look} of version "
        f"{rollout.version}, {form.format(breach.baseline_mean)} in {breach.baseline_values} of version "
        f"{rollout.baseline_version} (p = {breach.p_value:.2g}, below {breach.threshold:.2g})."
    )


def describe_change(rollout: RolloutView) -> str | None:
    """Return the inbox's text on a rollout that ended or needs an approval; None if no person need look."""
    version = f"version {rollout.version} of agent {rollout.agent_id!r}"
    match rollout.status:
        case "running":
            return None
        case "waiting":
            return (
                f"The rollout of {version} waits at {rollout.percent:g} % for your approval of the next step: "
                f"nova rollout advance {rollout.agent_id}"
            )
        case "promoted":
            return f"The rollout of {version} has ended: it is the current version."
        case "stopped":
            return f"The rollout of {version} was stopped. {rollout.reason}"
