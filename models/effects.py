"""Effects of runs and the search data that they write; deliveries and memories."""

from datetime import datetime
from typing import Any

from pgvector.sqlalchemy import Vector
from sqlalchemy import CheckConstraint, Column, Computed, Connection, Index, MetaData, event, literal_column, text
from sqlalchemy.dialects.postgresql import TSVECTOR
from sqlmodel import Field

from nova_workers.base.vocabulary import (
    EFFECT_KINDS,
    OPEN_EFFECTS,
    DeliveryKind,
    DeliveryStatus,
    EffectStatus,
    sql_list,
)

from .base import Table, metadata
from .columns import boolean, count, fk, id_ref, json, one_of, pk, string, time

MESSAGE_WORDS = """\
array_to_tsvector(ARRAY['@' || tenant_id, '@' || tenant_id || '/' || agent_id]) || to_tsvector('simple', content)"""
"""The words of a message, and two marks for its tenant and agent, so that the index finds one agent's words without
reading those of others. No word of a text begins with ``@``."""

_WORD = r"[0-9a-z\u00aa\u00b5\u00ba\u00c0-\u1fff\u2c00-\u2dff\ua640-\uabff\U00010000-\U0001ffff]{3,}"
"""A run of letters and digits, in text that is folded. Listed, since what a class of letters has depends on the locale
of the database."""

_UNSPACED = r"[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+"
"""A run of Chinese or Japanese, whose words are not apart, or of Korean, whose words have endings."""

_WORD_CHARS = 500
_RUN_CHARS = 4_000
"""Of longer words, such as a file in base64, and of longer unspaced runs only so much is found by its parts: the time
that it takes to cut one grows with the square of its length."""

MESSAGE_PARTS = "message_parts(tenant_id, agent_id, content)"
"""What the index of parts holds of a row of ``message_texts``."""

# Without accents, and with the compatible form of a character: a full-width letter is the common one. What has no
# decomposition is written out. Almost all texts are ASCII, for which there is a short way.
_FOLDED = r"""
CREATE OR REPLACE FUNCTION message_folded(content text) RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN CASE WHEN octet_length(content) = char_length(content) THEN lower(content)
            ELSE replace(replace(replace(translate(
                     lower(normalize(regexp_replace(normalize(content, NFKD), '[\u0300-\u036f]', '', 'g'), NFKC)),
                     'øłđħıŧ', 'oldhit'), 'ß', 'ss'), 'æ', 'ae'), 'œ', 'oe') END
"""

# The trigrams of each word of three letters or more, and the pairs of characters of each unspaced run. Its last
# character is there alone, so that a single one is found as the beginning of a part.
_PARTS = rf"""
CREATE OR REPLACE FUNCTION message_parts(tenant_id text, agent_id text, content text) RETURNS tsvector
LANGUAGE sql IMMUTABLE PARALLEL SAFE
RETURN array_to_tsvector(
    ARRAY['@' || tenant_id, '@' || tenant_id || '/' || agent_id]
    || (SELECT array_agg(substr(w[1], i, 3))
          FROM regexp_matches(message_folded(content), '{_WORD}', 'g') w,
               generate_series(1, least(char_length(w[1]), {_WORD_CHARS}) - 2) i)
    || (SELECT array_agg(substr(w[1], i, 2))
          FROM regexp_matches(CASE WHEN octet_length(content) > char_length(content) THEN message_folded(content) END,
                              '{_UNSPACED}', 'g') w,
               generate_series(1, least(char_length(w[1]), {_RUN_CHARS})) i))
"""

# A word or an unspaced run is a query for all of its parts; each pair of a longer run is one of its own too, since a
# run may be several words. `is_exact`: what has the parts has it, so no text needs to be looked at.
_ASKED_PARTS = rf"""
CREATE OR REPLACE FUNCTION message_parts_asked(asked text)
RETURNS TABLE (part text, grams text[], query tsquery, is_exact boolean)
LANGUAGE sql IMMUTABLE PARALLEL SAFE
BEGIN ATOMIC
SELECT found.part, found.grams,
       (SELECT string_agg('''' || gram || '''', ' & ') FROM unnest(found.grams) gram)::tsquery,
       cardinality(found.grams) = 1
  FROM (SELECT DISTINCT w[1] AS part,
               (SELECT array_agg(DISTINCT substr(w[1], i, 3)) FROM generate_series(1, char_length(w[1]) - 2) i) AS grams
          FROM regexp_matches(message_folded(asked), '{_WORD}', 'g') w
        UNION
        SELECT DISTINCT w[1], (SELECT array_agg(DISTINCT substr(w[1], i, 2))
                                 FROM generate_series(1, char_length(w[1]) - 1) i)
          FROM regexp_matches(message_folded(asked), '{_UNSPACED}', 'g') w
         WHERE char_length(w[1]) > 1
        UNION
        SELECT DISTINCT substr(w[1], i, 2), ARRAY[substr(w[1], i, 2)]
          FROM regexp_matches(message_folded(asked), '{_UNSPACED}', 'g') w,
               generate_series(1, char_length(w[1]) - 1) i) AS found
UNION ALL
SELECT w[1], ARRAY[w[1]], ('''' || w[1] || ''':*')::tsquery, true
  FROM regexp_matches(message_folded(asked), '{_UNSPACED}', 'g') w
 WHERE char_length(w[1]) = 1;
END
"""

_PART_SHARES = """
CREATE OR REPLACE FUNCTION message_part_shares() RETURNS TABLE (gram text, share real)
LANGUAGE sql STABLE SECURITY DEFINER SET search_path FROM CURRENT
AS $$
SELECT e.gram, e.share
  FROM pg_stats s
 CROSS JOIN LATERAL unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS e (gram, share)
 WHERE s.schemaname = current_schema() AND s.tablename = 'ix_message_texts__parts'
$$
"""
"""As `message_word_shares`, of the index of parts."""

PART_FUNCTIONS = (_FOLDED, _PARTS, _ASKED_PARTS, _PART_SHARES)
"""The functions by which search finds parts of words, in the order in which they are made.

The index of parts is made of `message_parts`: to cut texts otherwise, make another function and another index.
"""


class Effect(Table, table=True):
    """One piece of post-run work. A run's effects are executed in the order of `position`."""

    __tablename__ = "effects"
    __table_args__ = (
        # Effects of packages have a colon in their names.
        CheckConstraint(f"kind IN {sql_list(EFFECT_KINDS)} OR position(':' in kind) > 1", name="kind"),
        one_of("status", EffectStatus),
        Index("uq_effects__run_id_kind", "run_id", "kind", unique=True),
        # By kind first: what is due of one kind is found beside any number of another kind.
        Index(
            "ix_effects__due_of_kind",
            "kind",
            "due_at",
            postgresql_where=text(f"status IN {sql_list(OPEN_EFFECTS)}"),
        ),
        Index("ix_effects__over", "status", "done_at", postgresql_where=text("done_at IS NOT NULL")),
        {"postgresql_with": {"fillfactor": "80"}},
    )

    id: str = pk()
    tenant_id: str = id_ref()
    run_id: str = fk("runs.id")
    thread_id: str = id_ref()
    kind: str = string()
    position: int = count()
    status: str = string(default="pending")
    attempts: int = count()
    claims: int = count()
    due_at: datetime = time(
        now=True, comment="Pending: earliest start. Running: end of its lease, after which it is due again"
    )
    error: str | None = string(null=True)
    created_at: datetime = time(now=True)
    done_at: datetime | None = time(null=True)


class MessageText(Table, table=True):
    """The text of one message, for search by words.

    Written after the run, so that no run waits for its index. The text search configuration is
    ``simple``, which is of no language: conversations are in any, and search by words is best at names, numbers and
    codes.
    """

    __tablename__ = "message_texts"
    __table_args__ = (
        Index(None, "thread_id"),
        # For the number of an agent's messages: the index of words would read all of them to count a thousand.
        Index(None, "tenant_id", "agent_id"),
        # Without `fastupdate` a search never has to read a list of words that are not in the index yet.
        Index("ix_message_texts__words", "words", postgresql_using="gin", postgresql_with={"fastupdate": "off"}),
        # Not stored in the row, where it would take several times the text.
        Index(
            "ix_message_texts__parts",
            literal_column(MESSAGE_PARTS).label("parts"),
            postgresql_using="gin",
            postgresql_with={"fastupdate": "off"},
        ),
    )

    message_id: str = fk("messages.id", primary=True)
    tenant_id: str = id_ref()
    agent_id: str = id_ref()
    thread_id: str = fk("threads.id")
    role: str = string(comment="user or assistant")
    content: str = string()
    said_at: datetime = time(comment="When the message was written")
    words: Any = Field(
        sa_column=Column(
            TSVECTOR,
            Computed(MESSAGE_WORDS, persisted=True),
            nullable=False,
            comment="Words of the content, and marks of its tenant and agent",
        )
    )


class Embedding(Table, table=True):
    """The vector of one message.

    The column has no fixed width, so that the provider can be switched; the HNSW index covers the width
    of the local model.
    """

    __tablename__ = "embeddings"
    __table_args__ = (
        Index("uq_embeddings__message_id_model", "message_id", "model", unique=True),
        Index(None, "thread_id"),
        # For an agent with few messages all vectors are compared; for one with many the HNSW index is used.
        Index(None, "tenant_id", "agent_id"),
        # In half precision the index is half as large and half as expensive to write, and finds the same messages. Of
        # unit length, since half precision ends at 65,504.
        Index(
            "ix_embeddings__hnsw_half_384",
            literal_column("(l2_normalize(embedding)::halfvec(384))").label("embedding_384"),
            postgresql_using="hnsw",
            postgresql_ops={"embedding_384": "halfvec_cosine_ops"},
            postgresql_where=text("dimensions = 384"),
        ),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    agent_id: str = id_ref()
    thread_id: str = fk("threads.id")
    message_id: str = fk("messages.id")
    model: str = string()
    dimensions: int = count(default=None)
    embedding: Any = Field(sa_column=Column(Vector(), nullable=False))
    said_at: datetime = time(now=True, comment="When the message was written")
    created_at: datetime = time(now=True)


class Delivery(Table, table=True):
    """One item of the outbox or the inbox, delivered at least once."""

    __tablename__ = "deliveries"
    __table_args__ = (
        one_of("kind", DeliveryKind),
        one_of("status", DeliveryStatus),
        # By target first: a sender visits one target after the other, and skips a full or failing one in one step.
        Index("ix_deliveries__due", "target", "due_at", postgresql_where=text("status = 'pending'")),
        Index("ix_deliveries__inbox", "created_at", postgresql_where=text("target = 'user'")),
        Index(
            "ix_deliveries__over",
            "created_at",
            postgresql_where=text("target <> 'user' AND status IN ('delivered', 'failed', 'closed')"),
        ),
        Index("ix_deliveries__unrouted", "id", postgresql_where=text("target = 'user' AND NOT routed")),
        # The end of a run is delivered once to each target, however often it is attempted.
        Index(
            "uq_deliveries__run_end", "run_id", "target", unique=True, postgresql_where=text("kind = 'run_completed'")
        ),
        Index(None, "tenant_id", "target", "id"),
        Index(None, "tenant_id", "agent_id", "id"),
        Index(None, "run_id"),
    )

    id: str = pk()
    tenant_id: str = id_ref()
    run_id: str | None = id_ref(null=True)
    agent_id: str | None = id_ref(null=True)
    thread_id: str | None = id_ref(null=True)
    kind: str = string()
    target: str = string(
        comment="user is the inbox, else the id of a webhook, the name of a channel, or a lane of push notifications"
    )
    payload: dict[str, Any] = json()
    status: str = string(default="pending")
    routed: bool = boolean(comment="For the inbox: whether each channel that receives it has a row")
    attempts: int = count()
    claims: int = count()
    due_at: datetime = time(now=True, comment="Earliest attempt; during an attempt, the end of the sender's lease")
    webhook_id: str | None = id_ref(null=True, comment="The webhook that it is sent to, if any")
    response_status: int | None = count(null=True, default=None, comment="HTTP status of the latest answer")
    error: str | None = string(null=True)
    created_at: datetime = time(now=True)
    delivered_at: datetime | None = time(null=True)


class Memory(Table, table=True):
    """A fact that all agents of a tenant share."""

    __tablename__ = "memories"
    __table_args__ = (Index(None, "tenant_id", "id"),)

    id: str = pk()
    tenant_id: str = fk("tenants.id")
    agent_id: str = id_ref(comment="The agent that saved it")
    content: str = string()
    created_at: datetime = time(now=True)


@event.listens_for(metadata, "before_create")
def _make_functions(_: MetaData, connection: Connection, **__: Any) -> None:
    """Do for tables made from the metadata what the migrations did."""
    for statement in PART_FUNCTIONS:
        # A colon in a cast is no parameter.
        connection.exec_driver_sql(statement)
