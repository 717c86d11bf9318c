"""Evaluations and datasets in the console: examples by hand and from runs, estimates, and two answers side by side."""

from __future__ import annotations

from typing import Any

import httpx2

from nova_workers.contracts.evaluators import Exact
from nova_workers.contracts.http.evaluations import VerdictView
from nova_workers.domain.evaluations.rules.results import JudgedTrial, result_of
from tests.integration.api.manual_worker import ManualWorker
from tests.integration.console.conftest import Console
from tests.support.browser_forms import fields_of

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


async def test_an_evaluation_is_estimated_then_started(console: Console, browser: httpx2.AsyncClient) -> None:
    http = console.api.http
    assert "make a dataset first" in (await browser.get("/evaluations/~new")).text
    await http.post("/v1/datasets", json={"name": "prices"})
    await http.post("/v1/datasets/prices/examples", json={"examples": [{"input": "To Norway?", "expected": "12 EUR"}]})
    page = (await browser.get("/evaluations/~new", params={"agent": "nova", "dataset": "prices"})).text
    fields = fields_of(page, "evaluation")
    assert (fields["version"], fields["dataset"], fields["evaluators"]) == (["1"], ["prices"], ["exact"])
    assert 'value="start"' not in page
    fields |= {"repeats": ["3"], "bound-steps": ["4"], "live": ["clock, calendar"], "judge_budget_usd": ["0.5"]}
    asked = await browser.post("/evaluations/~new", data={**fields, "do": "estimate"})
    assert (asked.status_code, "3 answers" in asked.text, 'value="start"' in asked.text) == (200, True, True)
    assert (await http.get("/v1/evaluations")).json()["items"] == []
    wrong = await browser.post("/evaluations/~new", data={**fields, "do": "start", "others": "{}"})
    assert (wrong.status_code, "It is no list" in wrong.text) == (422, True)
    begun = await browser.post("/evaluations/~new", data={**fields, "do": "start"})
    again = await browser.post("/evaluations/~new", data={**fields, "do": "start"})
    assert begun.headers["location"] == again.headers["location"]
    [started] = (await http.get("/v1/evaluations")).json()["items"]
    assert [one["kind"] for one in started["evaluators"]] == ["exact", "steps", "judge"]
    assert (started["repeats"], started["tools"]["live"]) == (3, ["clock", "calendar"])
    assert begun.headers["location"] == f"/evaluations/{started['id']}"
    assert f"/evaluations/{started['id']}" in (await browser.get("/datasets/prices")).text


async def test_a_dataset_is_made_filled_by_hand_and_emptied(console: Console, browser: httpx2.AsyncClient) -> None:
    refused = await browser.post("/datasets/~new", data={"name": "Prices of May"})
    assert refused.status_code == 422
    made = await browser.post(
        "/datasets/~new", data={"name": "prices", "redact": "emails", "words": "Acme", "key": "evt_of_the_form"}
    )
    address = made.headers["location"]
    assert address == "/datasets/prices"
    assert "emails, words of your own: 1" in (await browser.get(address)).text
    typed = {"input": "What does Acme charge? ann@example.com", "expected": "12 EUR", "key": "acme", "tags": "eu, vip"}
    wrong = await browser.post(f"{address}/add", data={**typed, "key": "no key"})
    assert (wrong.status_code, "ann@example.com" in wrong.text) == (422, True)
    await browser.post(f"{address}/add", data=typed)
    page = (await browser.get(address, params={"tag": "vip"})).text
    assert "12 EUR" in page
    assert "ann@example.com" not in page
    assert "No example fits" in (await browser.get(address, params={"split": "test"})).text
    await browser.post(f"{address}/remove", data={"example": "acme"})
    assert "12 EUR" not in (await browser.get(address)).text
    assert "12 EUR" in (await browser.get(address, params={"version": "1"})).text
    assert (await browser.post(f"{address}/delete")).headers["location"] == "/datasets"
    assert (await browser.get(address)).status_code == 404


async def test_runs_become_examples_with_an_answer_that_a_person_corrected(
    console: Console, browser: httpx2.AsyncClient, worker: ManualWorker
) -> None:
    http, runs = console.api.http, list[str]()
    await http.post("/v1/datasets", json={"name": "prices"})
    for message in ("To Norway?", "To Peru?"):
        thread_id = await console.api.thread()
        runs.append(await console.api.run(thread_id, message))
        await worker.play(thread_id, "13 EUR")
    assert f'href="/runs/to-dataset?run={runs[0]}"' in (await browser.get(f"/runs/{runs[0]}")).text
    assert f'href="/runs/to-dataset?run={runs[1]}"' in (await browser.get(f"/chat/{thread_id}")).text
    fields = fields_of((await browser.get("/runs/to-dataset", params={"run": runs[0]})).text, "to-dataset")
    assert (fields["run"], fields["expected_text"]) == ([runs[0]], ["13 EUR"])
    refused = await browser.post("/runs/to-dataset", data={**fields, "split": "not a word"})
    assert (refused.status_code, "13 EUR" in refused.text) == (422, True)
    added = await browser.post("/runs/to-dataset", data={**fields, "expected_text": "12 EUR", "split": "test"})
    assert added.headers["location"] == "/datasets/prices"
    both = (await browser.get("/runs/to-dataset", params={"all": "yes", "text": "Peru"})).text
    fields = fields_of(both, "to-dataset")
    assert fields["run"] == [runs[1]]
    await browser.post("/runs/to-dataset", data={"run": runs, "dataset": "prices", "expected": "answer"})
    examples = (await http.get("/v1/datasets/prices/examples")).json()["items"]
    assert {one["key"]: (one["expected"], one["split"]) for one in examples} == {
        runs[0]: ("13 EUR", None),
        runs[1]: ("13 EUR", None),
    }
    earlier = (await http.get("/v1/datasets/prices/examples", params={"version": 1})).json()["items"]
    assert [(one["key"], one["expected"], one["split"]) for one in earlier] == [(runs[0], "12 EUR", "test")]


async def test_a_running_evaluation_is_canceled(console: Console, browser: httpx2.AsyncClient) -> None:
    http = console.api.http
    await http.post("/v1/datasets", json={"name": "prices"})
    await http.post("/v1/datasets/prices/examples", json={"examples": [{"input": "?"}]})
    started = await http.post("/v1/evaluations", json={"agent": "nova", "version": 1, "dataset": "prices"})
    address = f"/evaluations/{started.json()['id']}"
    assert (await browser.post(f"{address}/cancel")).headers["location"] == address
    assert "Canceled." in (await browser.get(address)).text
