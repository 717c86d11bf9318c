"""The real local model in its child process."""

import asyncio
import os
import signal
import socket
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio
from structlog.testing import capture_logs

from nova_workers.base.errors import Unavailable
from nova_workers.domain.effects.rules.local import LocalEmbeddings
from nova_workers.domain.effects.rules.provider import Vector
from tests.support.processes.inspection import is_alive
from tests.support.waiting import until


def _cosine(one: Vector, other: Vector) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def _session_niceness(pid: int) -> int | None:
    """Return the niceness of a process's session; None where the kernel does not group by sessions."""
    try:
        return int(Path(f"/proc/{pid}/autogroup").read_text(encoding="ascii").split()[-1])
    except FileNotFoundError:
        return None


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def lasting() -> AsyncIterator[LocalEmbeddings]:
    """One for all tests that do not ask how the child starts or ends: a start takes 0.4 s of CPU."""
    provider = LocalEmbeddings()
    yield provider
    await provider.close()


@pytest.fixture
def shared(lasting: LocalEmbeddings, monkeypatch: pytest.MonkeyPatch) -> LocalEmbeddings:
    """The lasting one without pauses, as `local`."""
    monkeypatch.setattr("nova_workers.domain.effects.rules.local._PAUSE_FACTOR", 0.0)
    return lasting


@pytest.fixture
async def pausing() -> AsyncIterator[LocalEmbeddings]:
    """The local model as it is."""
    provider = LocalEmbeddings()
    yield provider
    await provider.close()


@pytest.fixture
async def local(pausing: LocalEmbeddings, monkeypatch: pytest.MonkeyPatch) -> LocalEmbeddings:
    """The local model without the pauses that it makes where other tests run beside."""
    monkeypatch.setattr("nova_workers.domain.effects.rules.local._PAUSE_FACTOR", 0.0)
    return pausing


@pytest.mark.asyncio(loop_scope="module")
async def test_texts_of_similar_meaning_have_near_vectors(shared: LocalEmbeddings) -> None:
    questions = ["How do I reset my password?", "It is raining in Paris", "The build fails with a linker error"]
    answers = ["I forgot my login credentials", "The weather in France is wet", "Undefined symbol while compiling C++"]
    vectors = await shared.embed([*questions, *answers])
    assert {len(vector) for vector in vectors} == {384}
    assert all(abs(_cosine(vector, vector) - 1) < 1e-3 for vector in vectors)
    for place, question in enumerate(vectors[:3]):
        near = [_cosine(question, answer) for answer in vectors[3:]]
        assert near.index(max(near)) == place


@pytest.mark.asyncio(loop_scope="module")
async def test_a_texts_vector_does_not_depend_on_its_neighbours(shared: LocalEmbeddings) -> None:
    texts = [
        "",
        "hello",
        "And again",
        "And again",
        "Is it raining in Paris?",
        "你好世界",
        "word " * 12,
        "a longer text " * 7,
    ]
    texts += [
        "of two windows " * 70,
        "x " * 700,
        "The build fails with a linker error",
        "Remember that it is Thursday",
    ]
    alone = {text: (await shared.embed([text]))[0] for text in texts}
    for order in (texts, texts[::-1], sorted(texts), sorted(texts, key=len)):
        for text, among in zip(order, await shared.embed(order), strict=True):
            assert list(among) == pytest.approx(list(alone[text]), abs=1e-5)


@pytest.mark.asyncio(loop_scope="module")
async def test_the_end_of_a_long_text_counts(shared: LocalEmbeddings) -> None:
    filler = "The committee met and spoke about the agenda of the next meeting. " * 80
    plain, ending, password = await shared.embed(
        [filler, filler + "How do I reset my password? " * 12, "How do I reset my password?"]
    )
    assert _cosine(ending, password) > _cosine(plain, password) + 0.05


@pytest.mark.asyncio(loop_scope="module")
async def test_odd_texts_are_embedded(shared: LocalEmbeddings) -> None:
    texts = ["", " ", "你好世界", "😀" * 1000, "a\x00b", "x" * 100_000, "\u202e", '{"a": [1, 2]}\n']
    assert len(await shared.embed(texts)) == len(texts)
    assert await shared.embed([]) == []


@pytest.mark.asyncio(loop_scope="module")
async def test_a_single_text_does_not_wait_for_a_whole_batch(shared: LocalEmbeddings) -> None:
    batch = asyncio.create_task(shared.embed(["word " * 100] * 32))
    query = asyncio.create_task(shared.embed(["hello"]))
    done, _ = await asyncio.wait((batch, query), return_when=asyncio.FIRST_COMPLETED)
    assert done == {query}
    assert len(await batch) == 32


async def test_the_child_has_low_priority_and_its_own_session(local: LocalEmbeddings) -> None:
    assert local.child_pid is None
    await local.embed(["hello"])
    assert local.child_pid is not None
    child = psutil.Process(local.child_pid)
    assert child.nice() >= psutil.Process().nice() + 10 or child.nice() == 19
    # Its session too: a niceness counts within the session alone, where the kernel groups processes by sessions.
    assert _session_niceness(child.pid) in (10, None)
    assert os.getsid(child.pid) == child.pid
    assert child.memory_info().rss < 300_000_000


async def test_the_child_gets_no_secrets_of_the_parent(local: LocalEmbeddings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NOVA_MODEL__API_KEY", "sk-ant-secret")
    await local.embed(["hello"])
    assert local.child_pid is not None
    assert not any("secret" in value for value in psutil.Process(local.child_pid).environ().values())


async def test_a_child_that_was_killed_is_replaced(local: LocalEmbeddings) -> None:
    (before,) = await local.embed(["hello"])
    first = local.child_pid
    assert first is not None
    os.kill(first, signal.SIGKILL)
    (after,) = await local.embed(["hello"])
    assert local.child_pid != first
    assert list(before) == list(after)


async def test_a_child_that_is_killed_in_the_middle_is_replaced(local: LocalEmbeddings) -> None:
    await local.embed(["hello"])
    first = local.child_pid
    assert first is not None
    busy = asyncio.create_task(local.embed(["word " * 100] * 10))
    await asyncio.sleep(0)
    os.kill(first, signal.SIGKILL)
    assert len(await busy) == 10
    assert local.child_pid != first


async def test_a_child_that_hangs_is_stopped_and_replaced(local: LocalEmbeddings) -> None:
    await local.embed(["hello"])
    first = local.child_pid
    assert first is not None
    os.kill(first, signal.SIGSTOP)
    with pytest.MonkeyPatch.context() as patch:
        # Not before: a start takes longer on a busy machine.
        patch.setattr(local, "_timeout_s", 1.0)
        with pytest.raises(Unavailable, match="for 1 s"):
            await local.embed(["hello"])
    assert len(await local.embed(["hello"])) == 1
    assert local.child_pid != first


async def test_a_child_that_waited_for_the_processor_pauses_but_not_for_a_single_text(
    pausing: LocalEmbeddings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await pausing.embed(["hello"])
    pid = pausing.child_pid
    assert pid is not None
    # The start of the child may have waited too, where other tests run.
    monkeypatch.setattr(pausing, "_resumes_s", 0.0)
    os.kill(pid, signal.SIGSTOP)
    asyncio.get_running_loop().call_later(0.3, os.kill, pid, signal.SIGCONT)
    await pausing.embed(["hello", "again"])
    began_s = time.monotonic()
    several = asyncio.create_task(pausing.embed(["hello", "again"]))
    single = asyncio.create_task(pausing.embed(["hello"]))
    await asyncio.wait({several, single}, return_when=asyncio.FIRST_COMPLETED)
    assert single.done()
    assert not several.done()
    assert len(await several) == 2
    assert time.monotonic() - began_s > 2.0


async def test_closing_does_not_wait_for_the_child(local: LocalEmbeddings) -> None:
    await local.embed(["hello"])
    pid = local.child_pid
    assert pid is not None
    busy = asyncio.create_task(local.embed(["word " * 3000] * 200))
    child = psutil.Process(pid)
    used_s = child.cpu_times().user
    await until(lambda: child.cpu_times().user > used_s, "the child to work")
    async with asyncio.timeout(60):
        await local.close()
    with pytest.raises(Unavailable):
        await busy
    await until(lambda: not is_alive(pid))


async def test_closing_ends_a_pause(local: LocalEmbeddings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local, "_resumes_s", time.monotonic() + 3600)
    pausing = asyncio.create_task(local.embed(["hello", "again"]))
    await asyncio.sleep(0)
    await local.close()
    with pytest.raises(Unavailable, match="closed"):
        await pausing
    assert local.child_pid is None


async def test_a_call_that_waits_for_its_turn_starts_no_child_after_closing(local: LocalEmbeddings) -> None:
    await local.embed(["hello"])
    pid = local.child_pid
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    calls = [asyncio.create_task(local.embed(["hello"])) for _ in range(2)]
    await asyncio.sleep(0)
    with capture_logs() as logs:
        await local.close()
    assert [type(result) for result in await asyncio.gather(*calls, return_exceptions=True)] == [Unavailable] * 2
    assert not [line for line in logs if line["event"] == "embeddings.child_started"]


async def test_an_idle_child_is_ended_and_started_again() -> None:
    local = LocalEmbeddings(idle_s=0.05)
    await local.embed(["hello"])
    pid = local.child_pid
    assert pid is not None
    await until(lambda: not is_alive(pid))
    assert len(await local.embed(["hello"])) == 1
    await local.close()


async def test_the_child_dies_with_its_parent() -> None:
    script = (
        "import asyncio, os\n"
        "from nova_workers.domain.effects.rules.local import LocalEmbeddings\n"
        "async def main():\n"
        "    local = LocalEmbeddings()\n"
        "    await local.embed(['hello'])\n"
        "    print(f'child {local.child_pid}', flush=True)\n"
        "    os.kill(os.getpid(), 9)\n"
        "asyncio.run(main())\n"
    )
    parent = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", script), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL
    )
    output, _ = await parent.communicate()
    pid = next(int(line.split()[1]) for line in output.decode().splitlines() if line.startswith("child "))
    await until(lambda: not is_alive(pid))


async def test_nothing_is_downloaded(local: LocalEmbeddings, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", forbidden)
    monkeypatch.setenv("LD_LIBRARY_PATH", "")
    await local.embed(["hello"])
    assert local.child_pid is not None
    assert not [c for c in psutil.Process(local.child_pid).net_connections() if c.status != "NONE"]
