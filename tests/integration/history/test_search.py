"""Message search: by words, by meaning, within its bounds."""

import re
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from nova_workers.base.errors import InvalidInput
from nova_workers.domain.effects.rules.local import LocalEmbeddings
from nova_workers.domain.search.rules import History
from nova_workers.domain.search.sql.embeddings import EmbeddedMessage, MessageText, save_embeddings
from nova_workers.domain.search.sql.messages import MessageFilter, search_messages
from nova_workers.domain.threads.sql.records import delete_thread
from nova_workers.ledger.database import Connection, Database, Row
from tests.integration.effects.ledger import seed_run, seed_thread
from tests.integration.history.past_conversations import NOW, PastConversations
from tests.requirements import proves
from tests.support.data.seeded_embeddings import SeededEmbeddings, seeded_vector

NOVA = MessageFilter("ten_1", "nova")
_AT_ONCE = 500


@pytest.fixture
async def local() -> AsyncIterator[LocalEmbeddings]:
    """The model that ships with the fleet."""
    embeddings = LocalEmbeddings()
    yield embeddings
    await embeddings.close()


# Words


async def test_a_rare_word_ranks_above_many_common_ones(database: Database) -> None:
    past = PastConversations(database)
    for number in range(12):
        await past.say(f"What is the state of the build number {number}?")
    wanted = await past.say("The Zweitausendeins report")
    found = await past.find("what is the state of the zweitausendeins")
    assert found[0] == wanted.message_ids[0]


async def test_in_a_short_history_a_word_that_two_messages_have_is_not_common(database: Database) -> None:
    past = PastConversations(database)
    await past.say("It was late", "Work on it now.")
    wanted = await past.say("We saw the heron today", "You said: We saw the heron today")
    found = await past.find("where was the heron")
    assert set(found[:2]) == set(wanted.message_ids)
    # Nor is it for the statistics.
    await database.execute("ANALYZE message_texts")
    assert set((await past.find("where was the heron"))[:2]) == set(wanted.message_ids)


async def test_the_message_with_more_of_the_words_ranks_first(database: Database) -> None:
    past = PastConversations(database)
    one = await past.say("The invoice of March")
    both = await past.say("The invoice of the plumber")
    for number in range(8):
        await past.say(f"Something else, number {number}")
    assert await past.find("invoice plumber") == [both.message_ids[0], one.message_ids[0]]


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("The deployments were slow", "deploy"),
        ("Error E-4711 in line 12", "e-4711"),
        ("see /var/log/nova.log", "/var/log/nova.log"),
        ("max_attempts was raised", "max_attempts"),
        ("Größe und Übermut", "GRÖSSE ÜBERMUT"),
        ("Поезд в Москву", "москву"),
        ("it's O'Brien's", "o'brien"),
    ],
)
async def test_names_codes_and_forms_of_words_are_found_in_any_language(
    database: Database, said: str, asked: str
) -> None:
    past = PastConversations(database)
    run = await past.say(said)
    await past.say("Bread and butter")
    assert await past.find(asked) == [run.message_ids[0]]


_FOUND_BY_PARTS = {
    "Herr MeierSchmidtke called": ["schmidt", "meier"],
    "The train to neuhamburger Straße": ["hamburg", "strasse", "STRASSE"],
    "It is in /srv/files/2024_quarterly-v2.pdf": ["quarterly", "files/2024"],
    "Look at C:\\data\\oldreports\\a.txt": ["reports"],
    "Write to anna.smith@gmail.com please": ["gmail", "smith@gmail", "anna"],
    "The order is INV-2024004711-X": ["4711", "inv-202400"],
    "Pay to DE89370400440532013000": ["0532", "de8937"],
    "call getUserName() first": ["user", "username"],
    "Über den Wolken": ["uber", "über", "UBER"],
    "Ele mora em São Paulo": ["sao paulo", "sao"],
    "Pojechał do Łodzi": ["lodz"],
    "my code abc123": ["\uff41\uff42\uff43\uff11\uff12\uff13"],
    "я люблю москва-сити": ["москва".upper(), "скв"],
    "北京大学图书馆在哪里": ["图书馆", "大学", "北京的图书馆"],
    "東京都の天気はどうですか": ["天気", "東京都"],
    "私は猫が好きです": ["猫"],
    "新宿駅": ["駅"],
    "新しいテレビを買った": ["ﾃﾚﾋﾞ", "テレビ"],
    "서울대학교에서 만나요": ["대학교"],
    "ฉันรักประเทศไทย": ["ประเทศ"],
}
"""Texts, each with queries that find it first."""


@proves("search.parts")
async def test_parts_of_words_are_found_without_accents_and_in_any_script(database: Database) -> None:
    past = PastConversations(database)
    ids = {text: (await past.say(text)).message_ids[0] for text in _FOUND_BY_PARTS}
    for other in ("Hello there", "你好世界", "The weather is fine", "4712 0533 over 71147"):
        await past.say(other)
    found = {query: await past.find(query) for queries in _FOUND_BY_PARTS.values() for query in queries}
    wrong = {
        query: list(found[query])
        for text, queries in _FOUND_BY_PARTS.items()
        for query in queries
        if found[query][:1] != [ids[text]]
    }
    assert wrong == {}


@proves("search.parts")
async def test_a_whole_word_ranks_above_a_part_of_one(database: Database) -> None:
    past = PastConversations(database)
    whole = await past.say("Give the burg a call")
    part = await past.say("Give Hamburg a call")
    assert list(await past.find("burg"))[:2] == [whole.message_ids[0], part.message_ids[0]]


@proves("search.parts")
async def test_a_text_with_the_trigrams_of_a_part_and_not_the_part_is_not_found(database: Database) -> None:
    past = PastConversations(database)
    await past.say("1234 and 2345 and 3456")
    sought = await past.say("a123456b")
    assert await past.find("123456") == [sought.message_ids[0]]


@proves("search.parts")
async def test_of_a_word_as_long_as_a_file_the_beginning_is_indexed(database: Database) -> None:
    past = PastConversations(database)
    word = "".join(f"{number:x}" for number in range(8_000))
    kept = await past.say(word)
    assert await past.find(word[300:330]) == [kept.message_ids[0]]
    assert await past.find(word[-30:]) == []
    cut = "SELECT length(message_parts('t', 'a', :text))"
    assert await database.fetchval(cut, text=word) <= 500
    assert await database.fetchval(cut, text="語" * 20 + "かな" * 16_000) <= 4_002


@proves("search.parts")
async def test_a_long_text_is_shown_around_the_part(database: Database) -> None:
    past = PastConversations(database)
    await past.say("word " * 400 + "/srv/badger_report.pdf" + " word" * 400)
    hits = await History(database, None).search(MessageFilter("ten_1", "nova"), "dger", limit=1)
    assert "/srv/badger_report.pdf" in hits.items[0].excerpt
    assert len(hits.items[0].excerpt) < 800


async def test_a_word_of_every_message_is_found_if_it_is_the_whole_query(database: Database) -> None:
    past = PastConversations(database)
    runs = [await past.say(f"tea, number {number}", "Tea it is.") for number in range(6)]
    # The newest first, as nothing else distinguishes them.
    assert (await past.find("tea"))[:2] == [runs[5].message_ids[1], runs[5].message_ids[0]]
    await database.execute("ANALYZE message_texts")
    assert len(await past.find("tea")) == 10


async def test_words_that_are_common_by_the_statistics_are_left_out(database: Database) -> None:
    past = PastConversations(database)
    for number in range(30):
        await past.say(f"and the list goes on to number {number}")
    wanted = await past.say("the heron")
    await database.execute("ANALYZE message_texts")
    plans = await _plan(database, "and the heron", NOVA)
    assert await past.find("and the heron") == [wanted.message_ids[0]]
    # One word is left, so there is no query for "all of them together".
    scans = re.findall(r"Bitmap Index Scan on ix_message_texts__words.*loops=(\d+)", plans)
    assert max(int(loops) for loops in scans) == 1


async def test_nothing_is_found_for_words_that_no_message_has(database: Database) -> None:
    past = PastConversations(database)
    await past.say("Bread and butter")
    assert await past.find("quantum") == []
    assert await past.find("???") == []


async def test_a_long_text_is_shown_around_the_words(database: Database) -> None:
    past = PastConversations(database)
    await past.say(f"{'Lorem ipsum dolor. ' * 200}The heron stands in the reeds. {'Sit amet. ' * 200}")
    (hit,) = (await History(database, None).search(NOVA, "heron", limit=5)).items
    assert "heron stands in the reeds" in hit.excerpt
    assert len(hit.excerpt) < 700


# Meaning


@proves("history.hybrid")
async def test_meaning_is_found_without_a_common_word(database: Database, local: LocalEmbeddings) -> None:
    past = PastConversations(database, local)
    dog = await past.say("My puppy chewed the sofa again", "Poor sofa.")
    await past.say("The invoice is due on Friday", "I will remind you.")
    await past.say("Bake the bread for an hour", "Done.")
    assert (await past.find("trouble with a dog", embedder=local))[0] == dog.message_ids[0]
    assert await past.find("trouble with a dog") == []


@proves("history.hybrid")
async def test_hits_of_both_searches_rank_above_hits_of_one(database: Database, local: LocalEmbeddings) -> None:
    past = PastConversations(database, local)
    meaning = await past.say("Our kitten is called Whiskers", "A fine name.")
    words = await past.say("The pet project at work is late", "Which one?")
    both = await past.say("My pet is a cat", "I like cats.")
    for topic in ("Bread is baked for an hour", "The invoice is due", "Trains run on Sundays", "The build is red"):
        await past.say(topic, "Good to know.")
    result = await History(database, local).search(NOVA, "pet cat", limit=10)
    assert result.by_meaning
    order = [hit.message_id for hit in result.items]
    assert order[0] == both.message_ids[0]
    assert result.items[0].found_by == ["words", "meaning"]
    assert {meaning.message_ids[0], words.message_ids[0]} <= set(order[:5])
    assert [hit.score for hit in result.items] == sorted((hit.score for hit in result.items), reverse=True)


async def test_messages_without_a_vector_do_not_rank_below_all_others(database: Database) -> None:
    provider = SeededEmbeddings()
    past = PastConversations(database, provider)
    for number in range(15):
        await past.say(f"{('Anchors', 'Buckets', 'Candles')[number % 3]} of shipment {number}")
    late = await PastConversations(database).say("The heron")
    found = await past.find("anchors buckets candles heron", embedder=provider, limit=10)
    assert found[0] == late.message_ids[0]
    result = await History(database, provider).search(NOVA, "anchors heron", limit=10)
    assert [hit.found_by for hit in result.items if hit.message_id == late.message_ids[0]] == [["words"]]


@proves("history.hybrid")
async def test_without_the_model_words_are_found_and_the_result_states_it(database: Database) -> None:
    provider = SeededEmbeddings()
    past = PastConversations(database, provider)
    run = await past.say("The heron")
    provider.fails = True
    with capture_logs() as logs:
        result = await History(database, provider).search(NOVA, "heron", limit=5)
    assert [hit.message_id for hit in result.items] == [run.message_ids[0]]
    assert not result.by_meaning
    assert [log["event"] for log in logs] == ["search.without_meaning"]


async def test_vectors_of_each_model_are_searched_separately(database: Database) -> None:
    narrow, wide = SeededEmbeddings(), SeededEmbeddings(dimensions=1536, model="wide")
    run = await PastConversations(database, narrow).say("a b", "c d")
    past = PastConversations(database, wide)
    other = await past.say("e f", "g h")
    assert set(await past.find("c d", embedder=narrow)) == set(run.message_ids)
    assert (await past.find("a b", embedder=wide))[-2:] != list(run.message_ids)
    result = await History(database, wide).search(NOVA, "e f", limit=5)
    assert result.items[0].message_id == other.message_ids[0]
    assert result.items[0].found_by == ["words", "meaning"]


# Bounds


@proves("history.own")
async def test_a_search_stays_within_tenant_and_agent(database: Database) -> None:
    provider = SeededEmbeddings()
    past = PastConversations(database, provider)
    mine = await past.say("The heron", "A bird.")
    colleague = await past.say("The heron", "A bird.", agent_id="helper")
    foreign = await past.say("The heron", "A bird.", tenant_id="ten_2")
    assert set(await past.find("heron bird", NOVA, embedder=provider)) == set(mine.message_ids)
    everyone = await past.find("heron bird", MessageFilter("ten_1"), embedder=provider)
    assert set(everyone) == {*mine.message_ids, *colleague.message_ids}
    assert set(await past.find("heron bird", MessageFilter("ten_2"), embedder=provider)) == set(foreign.message_ids)
    assert await past.find("heron bird", MessageFilter("ten_3"), embedder=provider) == []


@proves("history.own")
async def test_marks_of_tenants_and_agents_are_not_found_as_words(database: Database) -> None:
    past = PastConversations(database)
    await past.say("The heron", tenant_id="ten_2")
    mine = await past.say("'@ten_2' @ten_2/nova @ten_1/helper")
    assert await past.find("heron '@ten_2' @ten_2/nova") == [mine.message_ids[0]]
    assert await past.find("'@ten_1/helper'", MessageFilter("ten_1", "helper")) == []
    assert await past.find("heron", MessageFilter("ten_2' | '@ten_2", "nova' | 'heron")) == []


async def test_a_period_a_thread_and_a_number_bound_it(database: Database) -> None:
    provider = SeededEmbeddings()
    past = PastConversations(database, provider)
    old = await past.say("The heron one", days_ago=10)
    middle = await past.say("The heron two", days_ago=5)
    new = await past.say("The heron three", days_ago=1)

    async def found(**bounds: object) -> set[str]:
        which = MessageFilter("ten_1", "nova", **bounds)  # type: ignore[arg-type]  # what a test names
        return set(await past.find("heron", which, embedder=provider))

    day = timedelta(days=1)
    assert await found(since=NOW - 5 * day) == {*middle.message_ids, *new.message_ids}
    assert await found(until=NOW - 5 * day) == set(old.message_ids)
    assert await found(since=NOW - 6 * day, until=NOW - 4 * day) == set(middle.message_ids)
    assert await found(except_thread_id=middle.thread_id) == {*old.message_ids, *new.message_ids}
    assert len(await past.find("heron", embedder=provider, limit=1)) == 1


async def test_a_period_that_ends_before_it_begins_is_refused(database: Database) -> None:
    with pytest.raises(InvalidInput, match=r"until is .* which is not after since"):
        await PastConversations(database).find("x", MessageFilter("ten_1", since=NOW, until=NOW))


@proves("history.deleted")
async def test_a_deleted_thread_is_not_found(database: Database) -> None:
    provider = SeededEmbeddings()
    past = PastConversations(database, provider)
    run = await past.say("The heron")
    assert await past.find("heron", embedder=provider)
    async with database.transaction() as transaction:
        await delete_thread(transaction, run.tenant_id, run.thread_id)
    assert await past.find("heron", embedder=provider) == []


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=st.text(st.characters(exclude_characters="\x00", codec="utf-8"), min_size=1, max_size=60))
async def test_any_text_may_be_stored_and_searched(database: Database, text: str) -> None:
    past = PastConversations(database)
    await past.say(text)
    # Whatever it holds (quotes, operators, backslashes) is a word or nothing; never a query of its own.
    await past.find(text)
    await past.find(f"'{text}' & !{text}:* | \\")


# Indexes


async def test_a_large_history_is_searched_by_the_indexes(database: Database) -> None:
    await _many(database, 1_500, tenant_id="ten_1")
    plan = await _plan(database, "heron", NOVA, vector=seeded_vector("17"))
    assert "ix_embeddings__hnsw_half_384" in plan
    assert "ix_message_texts__words" in plan
    assert "ix_message_texts__parts" in plan
    # The index of words would read all messages of the agent to count a thousand of them.
    assert "ix_message_texts__tenant_id_agent_id" in plan
    assert "Seq Scan on embeddings" not in plan
    assert "Seq Scan on message_texts" not in plan


async def test_the_vectors_of_an_agent_with_few_messages_are_compared_one_by_one(database: Database) -> None:
    await _many(database, 1_500, tenant_id="ten_1")
    few = await _many(database, 20, tenant_id="ten_1", agent_id="quiet")
    which = MessageFilter("ten_1", "quiet")
    plan = await _plan(database, "heron", which, vector=seeded_vector("17"))
    assert "ix_embeddings__tenant_id_agent_id" in plan
    async with database.transaction() as transaction:
        hits = await search_messages(transaction, which, "", vector=seeded_vector("q"), model="m", limit=50)
    assert {hit.message_id for hit in hits} == set(few)


async def test_the_vector_index_is_scanned_until_there_are_enough_hits(database: Database) -> None:
    """A small tenant's vectors are found although a thousand of another's are nearer."""
    await _many(database, 1_200, tenant_id="ten_big", near=seeded_vector("query"))
    small = await _many(database, 5, tenant_id="ten_small")
    async with database.transaction() as transaction:
        await transaction.execute("SET LOCAL enable_sort = off")
        hits = await search_messages(
            transaction, MessageFilter("ten_small"), "", vector=seeded_vector("query"), model="m", limit=5
        )
    assert {hit.message_id for hit in hits} == set(small)


@pytest.mark.parametrize("length", [1e-7, 1e6])
async def test_vectors_beyond_half_precision_are_indexed_and_found(database: Database, length: float) -> None:
    long = [number * length for number in seeded_vector("query")]
    ids = await _many(database, 1_200, tenant_id="ten_1", near=long)
    assert "ix_embeddings__hnsw_half_384" in await _plan(database, "", NOVA, vector=long)
    async with database.transaction() as transaction:
        hits = await search_messages(transaction, MessageFilter("ten_1", "nova"), "", vector=long, model="m", limit=50)
    assert len({hit.message_id for hit in hits} & set(ids)) == 50


async def test_a_word_that_very_many_messages_have_is_looked_for_in_some_of_them(database: Database) -> None:
    past = PastConversations(database)
    for number in range(12):
        await past.say(f"Nothing new, number {number}")
    old, new = await past.say("The state of it", days_ago=9), await past.say("The state of them")
    rare = await past.say("The Zweitausendeins report")
    other = await past.say("The state of another agent", agent_id="other")
    states = {run.message_ids[0] for run in (old, new)}
    await database.execute("ANALYZE message_texts")
    # What the statistics would say if as large a share of ten million messages had these words.
    await database.execute("UPDATE pg_class SET reltuples = 1e7 WHERE oid = 'message_texts'::regclass")

    assert set(await past.find("state")) == states
    assert set(await past.find("tate")) == states
    assert set(await past.find("state", MessageFilter("ten_1"))) == {*states, other.message_ids[0]}
    # Of several only the rarest counts; but the statistics know no periods.
    assert await past.find("state zweitausendeins") == [rare.message_ids[0]]
    recent = MessageFilter("ten_1", "nova", since=NOW - timedelta(days=1))
    assert set(await past.find("state zweitausendeins", recent)) == {new.message_ids[0], rare.message_ids[0]}


async def _many(
    database: Database, count: int, *, tenant_id: str, agent_id: str = "nova", near: Sequence[float] | None = None
) -> list[str]:
    """Write messages with vectors of all directions, or of about one; return their ids."""
    thread = await seed_thread(database, tenant_id=tenant_id, agent_id=agent_id)
    run = await seed_run(database, [("query", "x")], thread=thread, effects=[], agent_id=agent_id)
    ids = [f"msg_{tenant_id}_{agent_id}_{number}" for number in range(count)]
    await database.execute(
        "INSERT INTO messages (id, tenant_id, thread_id, turn_id, seq, kind, role, content)"
        " SELECT id, :tenant_id, :thread_id, :turn_id, place + 10, 'query', 'user', '[]'"
        "   FROM unnest(:ids::text[]) WITH ORDINALITY m (id, place)",
        ids=ids,
        tenant_id=tenant_id,
        thread_id=run.thread_id,
        turn_id=run.turn_id,
    )
    await database.execute(
        "INSERT INTO message_texts (message_id, tenant_id, agent_id, thread_id, role, content, said_at)"
        " SELECT id, :tenant_id, :agent_id, :thread_id, 'user', 'heron number ' || id, now()"
        " FROM unnest(:ids::text[]) id",
        ids=ids,
        tenant_id=tenant_id,
        agent_id=agent_id,
        thread_id=run.thread_id,
    )
    vectors = [
        [a + 0.05 * b for a, b in zip(near, seeded_vector(name), strict=True)] if near else seeded_vector(name)
        for name in ids
    ]
    embedded = [
        EmbeddedMessage(MessageText(tenant_id, agent_id, run.thread_id, message_id, "", NOW), vector)
        for message_id, vector in zip(ids, vectors, strict=True)
    ]
    # The index takes each vector up: all at once would take as long as no statement may.
    for first in range(0, count, _AT_ONCE):
        async with database.transaction() as transaction:
            await save_embeddings(transaction, embedded[first : first + _AT_ONCE], model="m")
    await database.execute("ANALYZE embeddings")
    await database.execute("ANALYZE message_texts")
    return ids


async def _plan(database: Database, text: str, which: MessageFilter, *, vector: Sequence[float] | None = None) -> str:
    """Return how Postgres does a search."""
    lines: list[str] = []

    class ExplainingConnection:
        """A connection that explains a search before it runs it."""

        def __init__(self, connection: Connection) -> None:
            self._connection = connection

        async def execute(self, statement: str, /, **values: object) -> str:
            return await self._connection.execute(statement, **values)

        async def fetch(self, statement: str, /, **values: object) -> list[Row]:
            lines.extend(row[0] for row in await self._connection.fetch(f"EXPLAIN ANALYZE {statement}", **values))
            return await self._connection.fetch(statement, **values)

    async with database.transaction() as transaction:
        await search_messages(
            ExplainingConnection(transaction),  # type: ignore[arg-type]  # what a search needs of one
            which,
            text,
            vector=vector,
            model="m",
            limit=10,
        )
    return "\n".join(lines)
