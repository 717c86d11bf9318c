"""What an evaluation found, as Markdown for people and as JUnit for continuous integration. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from nova_workers.contracts.http.evaluations import (
    ArmFigures,
    CalibrationView,
    DifferenceView,
    EvaluationResult,
    EvaluationView,
    TrialView,
)

_SHOWN_CHARS: Final = 2_000


def markdown_of(evaluation: EvaluationView) -> str:
    """Return the result as Markdown: the regressions first."""
    lines = [f"# {title_of(evaluation)}", "", summary_of(evaluation), ""]
    result = evaluation.result
    if result is None:
        return "\n".join(lines)
    if result.regressions:
        lines += ["## Regressions", "", "| example | candidate | baseline |", "| --- | ---: | ---: |"]
        lines += [f"| {one.key} | {one.candidate:.3f} | {one.baseline:.3f} |" for one in result.regressions]
        lines.append("")
    lines += ["## Evaluators", "", "| evaluator | passed | failed | not judged | mean score | difference |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
    lines += [
        f"| {one.evaluator['kind']} | {one.passed} | {one.failed} | {one.not_judged} | {number(one.mean_score)} | "
        f"{interval(one.difference)} |"
        for one in result.evaluators
    ]
    if calibrated := calibrations_of(result):
        lines += ["", "## Judges beside people", "", f"| {' | '.join(CALIBRATION_COLUMNS)} |"]
        lines.append("| --- | ---: | ---: | ---: | ---: | ---: |")
        lines += [f"| {' | '.join(row)} |" for row in calibrated]
    lines += ["", "## Cost and time", "", "| | candidate | baseline | difference |", "| --- | ---: | ---: | ---: |"]
    for name, value, compared in _FIGURES:
        baseline = "" if result.baseline is None else number(getattr(result.baseline, value))
        lines.append(
            f"| {name} | {number(getattr(result.candidate, value))} | {baseline} | "
            f"{interval(getattr(result, compared))} |"
        )
    return "\n".join([*lines, ""])


_FIGURES: Final = (("mean cost, USD", "mean_cost_usd", "cost_usd"), ("mean time, s", "mean_seconds", "seconds"))


CALIBRATION_COLUMNS: Final = (
    "judge",
    "rated answers",
    "not judged",
    "agreement",
    "rank correlation",
    "mean difference",
)


def calibrations_of(result: EvaluationResult) -> list[tuple[str, ...]]:
    """Return a row for each judge that was compared with people."""
    return [
        (str(at + 1), *_calibration(one.calibration))
        for at, one in enumerate(result.evaluators)
        if one.calibration is not None
    ]


def _calibration(found: CalibrationView) -> tuple[str, ...]:
    if found.answers < found.least:
        return f"{found.answers}: too few", str(found.not_judged), "", "", ""
    agreement = "" if found.agreement is None else f"{found.agreement:.1%}"
    difference = "" if found.mean_difference is None else f"{found.mean_difference:+.3g}"
    return str(found.answers), str(found.not_judged), agreement, number(found.rank_correlation), difference


def junit_of(evaluation: EvaluationView, trials: Iterable[TrialView]) -> str:
    """Return the candidate's verdicts as JUnit: a suite for each evaluator, and a case for each answer.

    What was not judged is an error, and so no success.
    """
    judged = [trial for trial in trials if trial.arm == "candidate" and trial.verdicts]
    root = Element("testsuites", name=title_of(evaluation))
    for at, evaluator in enumerate(evaluation.evaluators):
        _add_suite(root, f"{at + 1}. {evaluator['kind']}", judged, at)
    indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + tostring(root, encoding="unicode") + "\n"


def _add_suite(root: Element, name: str, trials: Sequence[TrialView], at: int) -> None:
    statuses = [trial.verdicts[at].status for trial in trials]
    suite = SubElement(
        root,
        "testsuite",
        name=name,
        tests=str(len(trials)),
        failures=str(statuses.count("failed")),
        errors=str(statuses.count("not_judged")),
    )
    for trial in trials:
        verdict = trial.verdicts[at]
        case = SubElement(
            suite, "testcase", classname=name, name=f"{trial.key} #{trial.repeat}", time=f"{trial.seconds or 0:.3f}"
        )
        if verdict.status != "passed":
            kind = "failure" if verdict.status == "failed" else "error"
            problem = SubElement(case, kind, message=_xml_text(verdict.reason))
            problem.text = _xml_text(trial.answer or trial.error or "")


def title_of(evaluation: EvaluationView) -> str:
    """Return the agent, its versions and the dataset, as a title."""
    against = "" if evaluation.against is None else f" against version {evaluation.against}"
    dataset = f"{evaluation.dataset} (version {evaluation.dataset_version})"
    return f"{evaluation.agent}: version {evaluation.version}{against}, over {dataset}"


def summary_of(evaluation: EvaluationView) -> str:
    """Return the outcome in a sentence."""
    why = f" ({evaluation.why})" if evaluation.why else ""
    text = f"{evaluation.status}{why}, {evaluation.done:,} of {evaluation.trials:,} answers"
    result = evaluation.result
    if result is None:
        return f"{text}."
    text += f"; passed: {_rate(result.candidate)}"
    if result.baseline is not None:
        text += f", baseline {_rate(result.baseline)}, difference of scores {interval(result.score)}"
    if result.meets_threshold is not None:
        text += f"; {'meets' if result.meets_threshold else 'below'} the threshold of {evaluation.threshold:.1%}"
    return f"{text}."


def interval(difference: DifferenceView | None) -> str:
    """Return a difference with its interval; a mark where it excludes that there is none."""
    if difference is None or difference.mean is None:
        return ""
    if difference.low is None or difference.high is None:
        return f"{difference.mean:+.3g}"
    mark = " *" if difference.is_clear else ""
    return f"{difference.mean:+.3g} [{difference.low:+.3g}, {difference.high:+.3g}]{mark}"


def number(value: float | None) -> str:
    """Return a number as tables have it."""
    return "" if value is None else f"{value:.4g}"


def _rate(figures: ArmFigures) -> str:
    return "none" if figures.pass_rate is None else f"{figures.pass_rate:.1%}"


def _xml_text(text: str) -> str:
    """Return a text that XML can have: without control characters."""
    short = text if len(text) <= _SHOWN_CHARS else text[:_SHOWN_CHARS] + "…"
    return "".join(mark for mark in short if mark in "\t\n\r" or mark.isprintable())
