"""Threads over HTTP: created, named, forked, read and deleted."""

from base64 import b64decode, b64encode
from io import BytesIO

import pytest
from PIL import Image

from nova_workers.contracts.engine import ToolCall
from nova_workers.ledger.database import Database
from tests.integration.api.conftest import Api
from tests.integration.api.manual_worker import ManualWorker, Tenant
from tests.requirements import proves
from tests.support.data.media_samples import png


async def _say(api: Api, worker: ManualWorker, thread_id: str, message: str, answer: str) -> str:
    """Play one turn and return its id."""
    await api.run(thread_id, message)
    return (await worker.play(thread_id, answer)).claim.turn_id


async def _texts(api: Api, thread_id: str, limit: int = 50) -> list[str]:
    """Read a whole conversation, page by page."""
    texts: list[str] = []
    cursor = None
    while True:
        page = (
            await api.http.get(
                f"/v1/threads/{thread_id}/messages",
                params={"limit": limit, **({"cursor": cursor} if cursor else {})},
            )
        ).json()
        texts += [item["content"][0]["text"] for item in page["items"]]
        cursor = page["next_cursor"]
        if cursor is None:
            return texts


async def test_a_thread_is_created_with_the_given_fields(api: Api) -> None:
    made = await api.http.post(
        "/v1/threads", json={"agent_id": "nova", "title": "T", "label": "main", "metadata": {"a": [1, {"b": None}]}}
    )
    assert made.status_code == 201
    thread = made.json()
    assert (thread["title"], thread["label"], thread["metadata"]) == ("T", "main", {"a": [1, {"b": None}]})
    assert (await api.http.get(f"/v1/threads/{thread['id']}")).json() == thread


async def test_a_thread_of_an_unknown_agent_is_refused(api: Api) -> None:
    answer = await api.http.post("/v1/threads", json={"agent_id": "nobody"})
    assert answer.status_code == 404
    assert answer.json()["errors"][0]["field"] == "agent_id"


async def test_a_patch_changes_only_what_it_names_and_null_clears(api: Api) -> None:
    thread_id = await api.thread(title="old", label="l", metadata={"keep": True})
    renamed = (await api.http.patch(f"/v1/threads/{thread_id}", json={"title": "new"})).json()
    assert (renamed["title"], renamed["label"], renamed["metadata"]) == ("new", "l", {"keep": True})
    cleared = (await api.http.patch(f"/v1/threads/{thread_id}", json={"label": None, "metadata": {}})).json()
    assert (cleared["title"], cleared["label"], cleared["metadata"]) == ("new", None, {})


async def test_a_label_is_unique_while_its_thread_lives(api: Api) -> None:
    first = await api.thread(label="main")
    assert (await api.http.post("/v1/threads", json={"label": "main"})).status_code == 409
    second = await api.thread()
    assert (await api.http.patch(f"/v1/threads/{second}", json={"label": "main"})).status_code == 409
    await api.http.delete(f"/v1/threads/{first}")
    assert (await api.http.patch(f"/v1/threads/{second}", json={"label": "main"})).status_code == 200


async def test_threads_are_listed_newest_first_by_agent_and_by_label(api: Api) -> None:
    ids = [await api.thread(label=f"l{n}", agent_id="nova" if n else "agent-builder") for n in range(3)]
    everything = (await api.http.get("/v1/threads")).json()["items"]
    assert [thread["id"] for thread in everything] == ids[::-1]
    of_builder = (await api.http.get("/v1/threads", params={"agent_id": "agent-builder"})).json()["items"]
    assert [thread["id"] for thread in of_builder] == [ids[0]]
    of_label = (await api.http.get("/v1/threads", params={"label": "l2"})).json()["items"]
    assert [thread["id"] for thread in of_label] == [ids[2]]


@proves("input.deleted-thread")
async def test_a_deleted_thread_is_gone_and_its_queued_runs_are_canceled(api: Api) -> None:
    thread_id = await api.thread()
    run_id = await api.run(thread_id)
    assert (await api.http.delete(f"/v1/threads/{thread_id}")).status_code == 204
    for method, path, body in (
        ("GET", "", None),
        ("DELETE", "", None),
        ("PATCH", "", {"title": "x"}),
        ("POST", "/runs", {"message": "hello"}),
        ("POST", "/runs/wait", {"message": "hello"}),
        ("POST", "/runs/stream", {"message": "hello"}),
        ("POST", "/fork", {}),
        ("GET", "/messages", None),
        ("GET", "/turns", None),
        ("GET", "/runs", None),
        ("POST", "/turns/turn_1/restore", None),
    ):
        answer = await api.http.request(method, f"/v1/threads/{thread_id}{path}", json=body)
        assert answer.status_code == 410, (method, path, answer.text)
        assert answer.json()["code"] == "gone"
    assert (await api.http.get(f"/v1/runs/{run_id}")).json()["status"] == "canceled"
    assert thread_id not in (await api.http.get("/v1/threads")).text


@pytest.mark.parametrize("limit", [1, 2, 3, 50])
async def test_messages_are_read_oldest_first_in_pages_of_any_size(api: Api, worker: ManualWorker, limit: int) -> None:
    thread_id = await api.thread()
    expected: list[str] = []
    for number in range(3):
        await _say(api, worker, thread_id, f"q{number}", f"a{number}")
        expected += [f"q{number}", f"a{number}"]
    assert await _texts(api, thread_id, limit) == expected


async def test_messages_after_one_and_runs_without_media_are_read(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(png()).decode()}
    image = {"type": "image", "source": source}
    await api.http.post(f"/v1/threads/{thread_id}/runs", json={"message": [image, {"type": "text", "text": "Look"}]})
    await worker.play(thread_id, "I see.")
    path = f"/v1/threads/{thread_id}"
    first, second = (await api.http.get(f"{path}/messages")).json()["items"]
    (left,) = (await api.http.get(f"{path}/messages", params={"after": first["id"]})).json()["items"]
    assert left == second
    assert (await api.http.get(f"{path}/messages", params={"after": second["id"]})).json()["items"] == []
    assert (await api.http.get(f"{path}/messages", params={"after": "msg_1"})).status_code == 422
    without = {"type": "image", "source": {"type": "base64", "media_type": "image/png"}}
    for runs in (f"{path}/runs", "/v1/runs"):
        (run,) = (await api.http.get(runs, params={"media": "false"})).json()["items"]
        assert run["message"] == [without, {"type": "text", "text": "Look"}]
    assert (await api.http.get(f"{path}/runs")).json()["items"][0]["message"][0] == image


async def test_messages_and_turns_are_read_by_the_depth_of_their_turn(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    for number in range(4):
        await _say(api, worker, thread_id, f"q{number}", f"a{number}")
    turns = (await api.http.get(f"/v1/threads/{thread_id}/turns", params={"to_depth": 2, "limit": 2})).json()
    depths = [turn["depth"] for turn in turns["items"]]
    assert depths == [2, 1]
    older = {"to_depth": 2, "limit": 2, "cursor": turns["next_cursor"]}
    assert [
        turn["depth"] for turn in (await api.http.get(f"/v1/threads/{thread_id}/turns", params=older)).json()["items"]
    ] == [0]
    which = {"from_depth": 1, "to_depth": 2, "limit": 3}
    page = (await api.http.get(f"/v1/threads/{thread_id}/messages", params=which)).json()
    rest = (
        await api.http.get(f"/v1/threads/{thread_id}/messages", params={**which, "cursor": page["next_cursor"]})
    ).json()
    texts = [item["content"][0]["text"] for item in page["items"] + rest["items"]]
    assert texts == ["q1", "a1", "q2", "a2"]
    assert rest["next_cursor"] is None


async def test_a_thread_without_a_title_has_the_beginning_of_its_first_message(api: Api) -> None:
    thread_id = await api.thread()
    assert (await api.http.get(f"/v1/threads/{thread_id}")).json()["opening"] is None
    await api.run(thread_id, "Ä" * 300)
    await api.run(thread_id, "second")
    (listed,) = (await api.http.get("/v1/threads")).json()["items"]
    assert listed["opening"] == "Ä" * 200
    await api.http.patch(f"/v1/threads/{thread_id}", json={"title": "Vowels"})
    (listed,) = (await api.http.get("/v1/threads")).json()["items"]
    assert (listed["title"], listed["opening"]) == ("Vowels", None)


async def test_a_running_turn_shows_what_it_committed(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    await api.run(thread_id, "look around")
    turn = await worker.claim(thread_id)
    await turn.commit("looking", ToolCall(id="toolu_1", tool_name="look", params={"at": "x"}, step=0, sequence=0))
    page = (await api.http.get(f"/v1/threads/{thread_id}/messages")).json()["items"]
    assert [message["kind"] for message in page] == ["query", "response", "tool_results"]
    (running,) = (await api.http.get(f"/v1/threads/{thread_id}/turns")).json()["items"]
    assert running["status"] == "running"
    assert running["tool_calls"][0]["tool_name"] == "look"
    assert running["usage"]["input_tokens"] == 10


@proves("engine.content-restored")
async def test_content_that_was_left_out_is_restored(api: Api, worker: ManualWorker, database: Database) -> None:
    thread_id = await api.thread()
    turns = [await _say(api, worker, thread_id, f"q{n}", f"a{n}") for n in range(2)]
    await database.execute(
        "UPDATE turns SET refused_blocks = :notes WHERE id = :turn_id", notes={"call:a": "[one]"}, turn_id=turns[0]
    )
    fork = (await api.http.post(f"/v1/threads/{thread_id}/fork", json={"turn_id": turns[0]})).json()["id"]
    path = f"/v1/threads/{fork}/turns"
    assert (await api.http.get(path)).json()["items"][0]["content_left_out"] == ["[one]"]
    # The turn after the fork is not of the fork's conversation.
    assert (await api.http.post(f"{path}/{turns[1]}/restore")).status_code == 404
    answers = [await api.http.post(f"{path}/{turns[0]}/restore") for _ in range(2)]
    assert [(answer.status_code, answer.json()) for answer in answers] == [
        (200, {"restored": ["[one]"]}),
        (200, {"restored": []}),
    ]
    assert (await api.http.get(path)).json()["items"][0]["content_left_out"] == []


@proves("media.scaled-once")
async def test_a_large_image_of_a_message_is_stored_smaller(api: Api) -> None:
    thread_id, written = await api.thread(), BytesIO()
    Image.new("RGB", (30, 3_000), "red").save(written, "PNG")
    source = {"type": "base64", "media_type": "image/png", "data": b64encode(written.getvalue()).decode()}
    body = {"message": [{"type": "image", "source": source}, {"type": "text", "text": "Look"}]}
    path = f"/v1/threads/{thread_id}/runs"
    run, again = [(await api.http.post(path, json=body, headers={"Idempotency-Key": "one"})).json() for _ in range(2)]
    assert run["id"] == again["id"]
    stored = (await api.http.get(f"/v1/runs/{run['id']}")).json()["message"][0]["source"]["data"]
    assert Image.open(BytesIO(b64decode(stored))).size == (20, 2_000)


async def test_a_fork_continues_from_a_turn_and_copies_nothing(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    turns = [await _say(api, worker, thread_id, f"q{n}", f"a{n}") for n in range(3)]
    forked = await api.http.post(f"/v1/threads/{thread_id}/fork", json={"turn_id": turns[1], "title": "other way"})
    assert forked.status_code == 201
    fork = forked.json()
    assert (fork["forked_from_thread_id"], fork["forked_from_turn_id"]) == (thread_id, turns[1])
    assert (fork["head_turn_id"], fork["turn_count"], fork["title"]) == (turns[1], 2, "other way")
    await _say(api, worker, fork["id"], "q-fork", "a-fork")
    assert await _texts(api, fork["id"], 2) == ["q0", "a0", "q1", "a1", "q-fork", "a-fork"]
    assert await _texts(api, thread_id) == ["q0", "a0", "q1", "a1", "q2", "a2"]
    listed = (await api.http.get(f"/v1/threads/{fork['id']}/turns", params={"limit": 2})).json()
    assert [turn["depth"] for turn in listed["items"]] == [2, 1]
    rest = await api.http.get(f"/v1/threads/{fork['id']}/turns", params={"cursor": listed["next_cursor"], "limit": 2})
    assert [turn["id"] for turn in rest.json()["items"]] == [turns[0]]


async def test_a_fork_of_a_fork_inherits_through_both(api: Api, worker: ManualWorker) -> None:
    first = await api.thread()
    early = await _say(api, worker, first, "q0", "a0")
    await _say(api, worker, first, "q1", "a1")
    second = (await api.http.post(f"/v1/threads/{first}/fork", json={})).json()["id"]
    await _say(api, worker, second, "q2", "a2")
    third = (await api.http.post(f"/v1/threads/{second}/fork", json={})).json()["id"]
    await _say(api, worker, third, "q3", "a3")
    assert await _texts(api, third, 3) == ["q0", "a0", "q1", "a1", "q2", "a2", "q3", "a3"]
    # A turn of the grandparent is in the history of the grandchild, so it can be forked there too.
    fourth = (await api.http.post(f"/v1/threads/{third}/fork", json={"turn_id": early})).json()
    assert fourth["turn_count"] == 1
    assert await _texts(api, fourth["id"]) == ["q0", "a0"]


async def test_a_fork_survives_the_deletion_of_what_it_was_forked_from(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    await _say(api, worker, thread_id, "q0", "a0")
    fork_id = (await api.http.post(f"/v1/threads/{thread_id}/fork", json={})).json()["id"]
    await api.http.delete(f"/v1/threads/{thread_id}")
    assert await _texts(api, fork_id) == ["q0", "a0"]


async def test_a_fork_needs_a_finished_turn_of_this_history(api: Api, worker: ManualWorker) -> None:
    thread_id = await api.thread()
    empty = await api.http.post(f"/v1/threads/{thread_id}/fork", json={})
    assert empty.status_code == 409
    stranger = await api.thread()
    foreign = await _say(api, worker, stranger, "q", "a")
    await _say(api, worker, thread_id, "q", "a")
    await api.run(thread_id)
    running = (await worker.claim(thread_id)).claim.turn_id
    for turn_id in (foreign, running, "turn_none"):
        refused = await api.http.post(f"/v1/threads/{thread_id}/fork", json={"turn_id": turn_id})
        assert refused.status_code == 404, turn_id
        assert refused.json()["errors"][0]["field"] == "turn_id"


async def test_of_many_forks_the_viewed_thread_and_those_that_it_comes_from_are_shown(
    api: Api, worker: ManualWorker, database: Database
) -> None:
    first = await api.thread()
    turn = await _say(api, worker, first, "q", "a")
    await database.execute(
        "INSERT INTO threads (id, tenant_id, agent_id, forked_from_thread_id, forked_from_turn_id)"
        " SELECT 'thr_A' || lpad(n::text, 4, '0'), :tenant_id, 'nova', :thread_id, :turn_id"
        " FROM generate_series(1, 300) n",
        tenant_id=api.tenant.id,
        thread_id=first,
        turn_id=turn,
    )
    middle = (await api.http.post(f"/v1/threads/{first}/fork", json={})).json()["id"]
    own = await _say(api, worker, middle, "q-middle", "a-middle")
    viewed = (await api.http.post(f"/v1/threads/{middle}/fork", json={"turn_id": own})).json()["id"]
    tree = (await api.http.get(f"/v1/threads/{viewed}/forks")).json()
    assert (len(tree["items"]), tree["complete"]) == (200, False)
    parents = {item["id"]: item["parent_thread_id"] for item in tree["items"]}
    assert (parents[first], parents[middle], parents[viewed]) == (None, first, middle)
    places = [item["id"] for item in tree["items"]]
    assert all(places.index(parent) < places.index(child) for child, parent in parents.items() if parent is not None)


async def test_runs_of_a_thread_are_listed_in_reverse_queue_order(api: Api) -> None:
    thread_id = await api.thread()
    ids = [await api.run(thread_id, f"m{n}") for n in range(3)]
    await api.run(await api.thread())
    page = (await api.http.get(f"/v1/threads/{thread_id}/runs", params={"limit": 2})).json()
    assert [run["id"] for run in page["items"]] == ids[:0:-1]
    assert [run["position"] for run in page["items"]] == [2, 1]
    rest = await api.http.get(f"/v1/threads/{thread_id}/runs", params={"limit": 2, "cursor": page["next_cursor"]})
    assert [run["id"] for run in rest.json()["items"]] == ids[:1]
    assert rest.json()["next_cursor"] is None


async def test_the_tree_of_forks_is_the_same_from_each_of_its_threads(
    api: Api, worker: ManualWorker, other_tenant: Tenant
) -> None:
    first = await api.thread(title="first")
    turns = [await _say(api, worker, first, f"q{n}", f"a{n}") for n in range(3)]
    second = (await api.http.post(f"/v1/threads/{first}/fork", json={"turn_id": turns[1]})).json()["id"]
    own = await _say(api, worker, second, "q-second", "a-second")
    third = (await api.http.post(f"/v1/threads/{second}/fork", json={"turn_id": own})).json()["id"]
    # A turn that the fork inherited: the new thread continues from the first one.
    early = (await api.http.post(f"/v1/threads/{second}/fork", json={"turn_id": turns[0]})).json()["id"]
    lonely = await api.thread()
    for thread in (first, second, third, early):
        answer = await api.http.get(f"/v1/threads/{thread}/forks")
        assert answer.status_code == 200, answer.text
        tree = answer.json()
        assert tree["complete"]
        assert [(t["id"], t["parent_thread_id"], t["fork_depth"], t["head_depth"]) for t in tree["items"]] == [
            (first, None, None, 2),
            (second, first, 1, 2),
            (early, first, 0, None),
            (third, second, 2, None),
        ]
    assert [(t["title"], t["opening"]) for t in tree["items"]] == [
        ("first", None),
        (None, "q-second"),
        (None, None),
        (None, None),
    ]
    assert [t["id"] for t in (await api.http.get(f"/v1/threads/{lonely}/forks")).json()["items"]] == [lonely]
    await api.http.delete(f"/v1/threads/{first}")
    (root, *_) = (await api.http.get(f"/v1/threads/{third}/forks")).json()["items"]
    assert (root["id"], root["deleted"], root["title"], root["opening"]) == (first, True, None, None)
    async with api.client(other_tenant.key) as other:
        assert (await other.get(f"/v1/threads/{third}/forks")).status_code == 404
