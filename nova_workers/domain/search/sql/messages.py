"""Message search by words and by meaning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from nova_workers.contracts.http.history import SearchHit
from nova_workers.domain.search.sql.said import said_role
from nova_workers.ledger.database import Connection, Row

INDEXED_DIMENSIONS = 384
"""Vectors of this width are in the HNSW index; others are compared one by one after the filters."""

_CANDIDATES = 50
"""Most candidates of each of the two ways; lower ranks would hardly count."""

_FEW = 10
"""A word in at most this many messages is significant, however short the history is."""

_EXCERPT_CHARS = 700
"""Of a longer text the excerpt shows the fragments around the words, or around a part of a word, or the beginning."""

_BEFORE_PART_CHARS = 200
"""How much such an excerpt shows before the part."""

_TRIGRAMS = 4
"""How many trigrams of a part are looked up, the rarest: each further one costs more than the texts that it spares."""

_COMPARED = 500
"""Most texts that are compared with a part. They have these trigrams, so that almost all of them have it."""

_MOST_OF_PART = 300
"""Most texts of a part. One that has as many is common, and counts as a word of `_MOST_OF_WORD` texts."""

_MOST_OF_WORD = 1_000
"""Most texts of a word."""

_CROWD = 4 * _MOST_OF_WORD
"""A word of as many messages, by the statistics, is certain to reach `_MOST_OF_WORD`, and so would not count."""

_MOST_READ = 20_000
"""Most entries of an index that are read for the rarest word or part: 4 ms of CPU. A commoner one is looked for in some
messages alone."""

_LOOKED_AT = 5_000
"""How many messages these are: 5 ms of CPU, and a hundred hits of a word that a fiftieth of them has."""

_HAS_MOST = 0.5
"""From this share of all messages on, the owner's mark spares less than it takes to read its list: 3 ms a word among a
million messages."""

_NEAREST_LOOKED_AT = 200
"""Width of the search in the vectors' index. With the default of 40, 88 of the 100 nearest were found among a million
vectors in clusters, and 94 to 97 with 200, at 1 to 2 ms more; 400 found no more (`tests/bench`, row `search`)."""


@dataclass(frozen=True, slots=True)
class MessageFilter:
    """Which messages of a tenant to search.

    Attributes:
        since: Start of the period, inclusive.
        until: End of the period, exclusive.
        except_thread_id: A thread to leave out.
    """

    tenant_id: str
    agent_id: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    except_thread_id: str | None = None


_FILTER = """
tenant_id = :tenant_id AND (:agent_id::text IS NULL OR agent_id = :agent_id)
   AND (:since::timestamptz IS NULL OR said_at >= :since)
   AND (:until::timestamptz IS NULL OR said_at < :until)
   AND (:except_thread_id::text IS NULL OR thread_id <> :except_thread_id)"""

# With the owner's mark the index itself leaves out all others' messages. The columns are compared in any case.
_OWN: Final = "CASE WHEN o.has_most THEN {query} ELSE {query} && o.mark END"

# Parts of words and unspaced words: each of the query's twelve rarest, by the statistics of their index
# (models/effects.py). Texts that have the rarest trigrams of a part are compared with it. A part whose trigrams are all
# in more than a tenth of the messages is left out, unless there is no other; and so is a word that enough messages have
# whole, since these rank first. Where the index would read very much, some messages are looked at, as for words below.
_PARTS = f"""
part_grams AS (
    SELECT a.part, a.query, a.is_exact, g.gram, COALESCE(s.share, 0) AS share,
           row_number() OVER (PARTITION BY a.part ORDER BY COALESCE(s.share, 0), g.gram) AS place
      FROM message_parts_asked(:text::text) a
     CROSS JOIN unnest(a.grams) AS g (gram)
      LEFT JOIN message_part_shares() s ON s.gram = g.gram
), part_spreads AS (
    SELECT part, is_exact, min(share) AS share,
           min(share) * (SELECT total FROM owner) AS spread, min(share) * (SELECT size FROM owner) AS here,
           CASE WHEN is_exact THEN min(query::text)
                ELSE string_agg('''' || gram || '''', ' & ') END::tsquery AS query
      FROM part_grams
     WHERE place <= {_TRIGRAMS}
     GROUP BY part, is_exact
), part_places AS (
    SELECT *, row_number() OVER (ORDER BY share, char_length(part) DESC, part) AS place FROM part_spreads
), parts AS MATERIALIZED (
    SELECT part, query, is_exact, here > {_MOST_READ} AND (is_exact OR share > 0.1) AS is_crowded
      FROM part_places p
     WHERE (place = 1
            OR (place <= 12 AND (share <= 0.1 OR spread <= {_FEW}) AND NOT (is_exact AND here > {_CROWD})))
       AND NOT EXISTS (SELECT FROM found f WHERE f.lexeme = p.part AND f.spread >= {_CANDIDATES})
       AND NOT EXISTS (SELECT FROM asked a WHERE a.lexeme = p.part AND a.here > {_CROWD})
), parts_found AS (
    SELECT x.message_id,
           CASE WHEN count(*) OVER of_part < {_MOST_OF_PART} THEN count(*) OVER of_part
                ELSE {_MOST_OF_WORD} END AS spread
      FROM parts p
     CROSS JOIN owner o
     CROSS JOIN LATERAL (
           SELECT c.message_id
             FROM (SELECT message_id, content FROM message_texts
                    WHERE message_parts(tenant_id, agent_id, content) @@ {_OWN.format(query="p.query")}
                      AND {_FILTER}
                    LIMIT {_COMPARED}) c
            WHERE p.is_exact OR strpos(message_folded(c.content), p.part) > 0
            LIMIT {_MOST_OF_PART}) x
     WHERE NOT p.is_crowded
    WINDOW of_part AS (PARTITION BY p.part)
    UNION ALL
    SELECT x.message_id, {_MOST_OF_WORD}
      FROM parts p
     CROSS JOIN LATERAL (
           SELECT c.message_id
             FROM (SELECT message_id, content FROM message_texts WHERE {_FILTER} LIMIT {_LOOKED_AT}) c
            WHERE strpos(message_folded(c.content), p.part) > 0
            LIMIT {_MOST_OF_PART}) x
     WHERE p.is_crowded
)"""

# Each of the query's twelve rarest words is a query of its own; from four letters on also as a prefix, which covers the
# forms of a word in any language. All words together are one more query. `mark` is that of the tenant or agent
# (models/effects.py): with it the index itself leaves out all others.
#
# A scan of the index reads everything that matches before it returns the first row, however few are asked for. So a
# word that `_CROWD` of the owner's messages have, by the statistics (`here`), is not a query of its own unless it is
# the rarest, and never a prefix; and if the rarest is in more than `_MOST_READ`, it is looked for in some messages
# alone. Such a word would not count anyway, unless nothing rarer was found. The statistics know no periods, so a search
# within one reads the index for all words. Of a prefix the index collects all messages, of all owners, before it
# compares the mark: so a word that `_MOST_READ` messages of the table have is no prefix either.
#
# Each query returns a bounded number of rows, so the cost is bounded. Frequent words cost most and say least. So words
# that the table's statistics have in more than a tenth of all messages are left out, unless there is no other word; and
# words that more than a quarter of the messages here have (or 1,000, where there are as many) do not count, unless
# nothing rarer was found. A word in few messages is never frequent. The weight of a word is its rarity: Postgres' own
# ranks ignore rarity, and its stop words cover one language each.
_BY_WORDS = rf"""
common AS MATERIALIZED (
    SELECT lexeme, share FROM message_word_shares()
), owner AS MATERIALIZED (
    SELECT :mark::text::tsquery AS mark, own.share > {_HAS_MOST} AS has_most, t.reltuples AS total,
           CASE WHEN :since::timestamptz IS NULL AND :until::timestamptz IS NULL THEN own.share * t.reltuples
                ELSE 0 END AS size
      FROM (SELECT COALESCE(max(share), 0) AS share FROM common WHERE lexeme = :owner::text) own
      JOIN pg_class t ON t.oid = 'message_texts'::regclass
), asked AS (
    SELECT q.lexeme, COALESCE(c.share, 0) AS share, COALESCE(c.share, 0) * o.total AS spread,
           COALESCE(c.share, 0) * o.size AS here,
           row_number() OVER (ORDER BY COALESCE(c.share, 0), char_length(q.lexeme) DESC, q.lexeme) AS place
      FROM unnest(to_tsvector('simple', :text::text)) q
     CROSS JOIN owner o
      LEFT JOIN common c ON c.lexeme = q.lexeme
), words AS (
    SELECT (E'\'' || replace(replace(lexeme, E'\\', E'\\\\'), '''', '''''') || ''''
            || CASE WHEN char_length(lexeme) >= 4 AND here <= {_CROWD} AND spread <= {_MOST_READ} THEN ':*'
                    ELSE '' END)::tsquery AS query,
           lexeme, place, here
      FROM asked
     WHERE place = 1 OR (place <= 12 AND (share <= 0.1 OR spread <= {_FEW}))
), terms AS (
    SELECT query, lexeme FROM words WHERE here <= CASE WHEN place = 1 THEN {_MOST_READ} ELSE {_CROWD} END
    UNION ALL
    SELECT string_agg(query::text, ' & ')::tsquery, NULL FROM words HAVING count(*) > 1
), corpus AS (
    SELECT count(*) AS size
      FROM (SELECT FROM message_texts
             WHERE tenant_id = :tenant_id AND (:agent_id::text IS NULL OR agent_id = :agent_id)
             LIMIT 1000) own
), found AS (
    SELECT t.lexeme, x.message_id, count(*) OVER (PARTITION BY t.query::text) AS spread
      FROM terms t
     CROSS JOIN owner o
     CROSS JOIN LATERAL (
           SELECT message_id FROM message_texts
            WHERE words @@ {_OWN.format(query="t.query")} AND {_FILTER}
            LIMIT {_MOST_OF_WORD}) x
    UNION ALL
    SELECT w.lexeme, x.message_id, {_MOST_OF_WORD}
      FROM words w
     CROSS JOIN LATERAL (
           SELECT c.message_id
             FROM (SELECT message_id, words FROM message_texts WHERE {_FILTER} LIMIT {_LOOKED_AT}) c
            WHERE c.words @@ w.query
            LIMIT {_MOST_OF_WORD}) x
     WHERE w.place = 1 AND w.here > {_MOST_READ}
), {_PARTS}, telling AS (
    SELECT f.message_id, ln((c.size + 1)::float8 / f.spread + 1) AS weight
      FROM (SELECT *, min(spread) OVER () AS rarest
              FROM (SELECT message_id, spread FROM found UNION ALL SELECT message_id, spread FROM parts_found) b) f
     CROSS JOIN corpus c
     WHERE f.spread <= GREATEST(f.rarest, CASE WHEN c.size < 1000 THEN GREATEST(c.size / 4, {_FEW}) ELSE 999 END)
), by_words AS (
    SELECT message_id, row_number() OVER (ORDER BY sum(weight) DESC, message_id DESC) AS place
      FROM telling
     GROUP BY message_id
     ORDER BY place
     LIMIT {_CANDIDATES}
)"""

# In the words of the index (models/effects.py), which is in half precision. Its scan skips filtered messages and
# continues until it has enough; if the filters leave few, they are compared one by one.
_NEAR_INDEXED = f"""
SELECT message_id,
       l2_normalize(embedding)::halfvec(384) <=> l2_normalize(:vector::real[]::vector)::halfvec(384) AS distance
  FROM embeddings
 WHERE dimensions = 384 AND model = :model::text AND {_FILTER}
 ORDER BY distance
 LIMIT {_CANDIDATES}"""

_NEAR_PLAIN = f"""
SELECT message_id, embedding <=> :vector::real[]::vector AS distance
  FROM embeddings
 WHERE dimensions = cardinality(:vector::real[]) AND model = :model::text AND {_FILTER}
 ORDER BY distance
 LIMIT {_CANDIDATES}"""

_NEAR_NOTHING = "SELECT NULL::text, NULL::float8 WHERE :vector::real[] IS NOT NULL AND :model::text IS NOT NULL"


# Reciprocal rank fusion (Cormack, Clarke, Büttcher 2009): each way votes with 1 / (60 + place). It needs no common
# scale, and prefers messages that both ways found. A message without a vector of the model cannot be found by meaning,
# so its word rank votes for both ways; otherwise the newest messages would come last.
def _search(near: str) -> str:
    return f"""
WITH {_BY_WORDS}, near AS (
    SELECT message_id, row_number() OVER (ORDER BY distance) AS place
      FROM ({near}) n (message_id, distance)
), votes AS (
    SELECT message_id, place, 'words' AS way FROM by_words
    UNION ALL
    SELECT message_id, place, 'meaning' FROM near
    UNION ALL
    SELECT message_id, place, 'words'
      FROM by_words b
     WHERE :model::text IS NOT NULL
       AND NOT EXISTS (SELECT FROM embeddings e WHERE e.message_id = b.message_id AND e.model = :model::text)
), fused AS (
    SELECT message_id, sum(1.0 / (60 + place))::float8 AS score, array_agg(DISTINCT way ORDER BY way DESC) AS ways
      FROM votes
     GROUP BY message_id
), highlight AS (
    SELECT COALESCE(string_agg(query::text, ' | ')::tsquery, ''::tsquery) AS query FROM words
), best AS (
    SELECT f.*, x.content, x.thread_id, t.title, x.agent_id, x.role, x.said_at, a.query,
           CASE WHEN char_length(x.content) > {_EXCERPT_CHARS} AND NOT x.words @@ a.query
                THEN (SELECT min(NULLIF(strpos(message_folded(x.content), p.part), 0)) FROM parts p) END AS part_at
      FROM fused f
      JOIN message_texts x ON x.message_id = f.message_id
      JOIN threads t ON t.id = x.thread_id AND t.deleted_at IS NULL
     CROSS JOIN highlight a
     ORDER BY f.score DESC, f.message_id DESC
     LIMIT :limit
)
SELECT f.message_id, m.turn_id, u.depth, f.score, f.ways AS found_by, f.thread_id, f.title AS thread_title,
       f.agent_id, f.role, f.said_at,
       CASE WHEN char_length(f.content) <= {_EXCERPT_CHARS} THEN f.content
            WHEN f.part_at > {_BEFORE_PART_CHARS}
            THEN ' … ' || substr(f.content, f.part_at - {_BEFORE_PART_CHARS}, {_EXCERPT_CHARS}) || ' … '
            ELSE ts_headline('simple', f.content, f.query, 'StartSel="", StopSel="", MaxFragments=3, MaxWords=40, '
                             'MinWords=20, FragmentDelimiter=" … "') END AS excerpt
  FROM best f
  JOIN messages m ON m.id = f.message_id
  JOIN turns u ON u.id = m.turn_id
 ORDER BY f.score DESC, f.message_id DESC
"""


_SEARCH = {near: _search(near) for near in (_NEAR_INDEXED, _NEAR_PLAIN, _NEAR_NOTHING)}

# For this transaction only. Without them, an HNSW scan would stop after `hnsw.ef_search` rows of any tenant. The plan
# is made for these filter values, since agents differ a thousandfold in messages. The words' index is always used: the
# planner assumes middling rarity for each word, and prefers to scan a large table.
_SETTINGS = f"""
SELECT set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.ef_search', '{_NEAREST_LOOKED_AT}', true), set_config('enable_seqscan', 'off', true),
       set_config('plan_cache_mode', 'force_custom_plan', true), set_config('jit', 'off', true)
"""


async def search_messages(
    transaction: Connection,
    which: MessageFilter,
    text: str,
    *,
    vector: Sequence[float] | None = None,
    model: str | None = None,
    limit: int = 10,
) -> list[SearchHit]:
    """Return the messages that match a query best, best first. Deleted threads are left out.

    Args:
        transaction: A transaction, since the settings are local to it.
        which: Which messages to search.
        text: The query. Its words match whole words and prefixes.
        vector: The query, embedded by `model`. None searches by words only.
        model: The embedding model.
        limit: Most hits, up to 50.
    """
    owner = f"@{which.tenant_id}" if which.agent_id is None else f"@{which.tenant_id}/{which.agent_id}"
    await transaction.execute(_SETTINGS)
    rows = await transaction.fetch(
        _SEARCH[_near(vector)],
        tenant_id=which.tenant_id,
        agent_id=which.agent_id,
        since=which.since,
        until=which.until,
        except_thread_id=which.except_thread_id,
        text=text,
        vector=None if vector is None else list(vector),
        mark=_quoted(owner),
        owner=owner,
        model=model,
        limit=limit,
    )
    return [_hit(row) for row in rows]


def _near(vector: Sequence[float] | None) -> str:
    if vector is None:
        return _NEAR_NOTHING
    return _NEAR_INDEXED if len(vector) == INDEXED_DIMENSIONS else _NEAR_PLAIN


def _quoted(mark: str) -> str:
    """Return the mark of a tenant's or agent's messages, as a query."""
    return "'{}'".format(mark.replace("\\", "\\\\").replace("'", "''"))


def _hit(row: Row) -> SearchHit:
    return SearchHit.model_validate({**row, "role": said_role(row["role"])})
