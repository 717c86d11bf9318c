"""Evaluations in the console: the regressions first, and two answers side by side."""

from __future__ import annotations

from typing import Any

import httpx2

from nova_workers.contracts.evaluators import Exact
from nova_workers.contracts.http.evaluations import VerdictView
from nova_workers.domain.evaluations.rules.results import JudgedTrial, result_of
from tests.integration.console.conftest import Console

_END = """
UPDATE evaluations SET status = 'done', result = :result WHERE id = :evaluation_id RETURNING id
"""
_ANSWER = """
UPDATE evaluation_trials SET state = 'done', outcome = 'succeeded', answer = :answer, verdicts = :verdicts,
       calls = :calls
 WHERE evaluation_id = :evaluation_id AND arm = :arm
RETURNING id
"""


async def _judged(console: Console, evaluation_id: str) -> None:
    """Let both versions have answered: the candidate worse than the baseline."""
    said: list[tuple[Any, VerdictView]] = [
        ("candidate", VerdictView(status="failed", score=0, reason="the answer is '13 EUR'")),
        ("baseline", VerdictView(status="passed", score=1, reason="the answer is the expected one")),
    ]
    for arm, verdict in said:
        await console.api.fetchval(
            _ANSWER,
            evaluation_id=evaluation_id,
            arm=arm,
            answer="13 EUR" if arm == "candidate" else "12 EUR",
            verdicts=[verdict.model_dump()],
            calls=[{"tool": "lookup_price", "arguments": {"to": "Norway"}}],
        )
    trials = [JudgedTrial("shipping-1", arm, True, [verdict], None, 1.0) for arm, verdict in said]
    result = result_of([Exact()], trials, has_baseline=True, threshold=None)
    await console.api.fetchval(_END, evaluation_id=evaluation_id, result=result.model_dump(mode="json"))


async def test_regressions_lead_to_both_answers_with_their_calls(console: Console, browser: httpx2.AsyncClient) -> None:
    http = console.api.http
    empty = (await browser.get("/evaluations")).text
    assert "nova evals run" in empty
    assert "nova datasets create" in empty
    await http.patch("/v1/agents/nova", json={"name": "Nova 2"})
    await http.post("/v1/datasets", json={"name": "prices", "description": "What people ask of prices"})
    example = {"key": "shipping-1", "input": "To Norway?", "expected": "12 EUR"}
    await http.post("/v1/datasets/prices/examples", json={"examples": [example]})
    start = {"agent": "nova", "version": 2, "against": 1, "dataset": "prices"}
    evaluation_id = (await http.post("/v1/evaluations", json=start)).json()["id"]
    assert "What people ask of prices" in (await browser.get("/evaluations")).text
    address = f"/evaluations/{evaluation_id}"
    running = (await browser.get(address)).text
    assert "0 / 2" in running
    assert "Cancel this evaluation?" in running
    await _judged(console, evaluation_id)
    page = (await browser.get(address)).text
    assert "Cancel this evaluation?" not in page
    assert page.index('id="regressions"') < page.index('id="evaluators"') < page.index('id="trials"')
    assert f'href="{address}?key=shipping-1"' in page
    beside = (await browser.get(address, params={"key": "shipping-1"})).text
    assert beside.index("13 EUR") < beside.index("12 EUR")
    assert beside.count("lookup_price") == 2
    assert (await browser.get("/evaluations/evl_unknown")).status_code == 404


async def test_a_running_evaluation_is_canceled(console: Console, browser: httpx2.AsyncClient) -> None:
    http = console.api.http
    await http.post("/v1/datasets", json={"name": "prices"})
    await http.post("/v1/datasets/prices/examples", json={"examples": [{"input": "?"}]})
    started = await http.post("/v1/evaluations", json={"agent": "nova", "version": 1, "dataset": "prices"})
    address = f"/evaluations/{started.json()['id']}"
    assert (await browser.post(f"{address}/cancel")).headers["location"] == address
    assert "Canceled." in (await browser.get(address)).text
