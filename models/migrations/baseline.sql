-- The schema of a new database. Written by `python -m tests.support.data.baseline` from the migrations: change those.
-- Revision: 0082
SET LOCAL check_function_bodies = false;
SELECT pg_catalog.set_config('search_path', '', true);


CREATE EXTENSION IF NOT EXISTS vector WITH SCHEMA public;

CREATE FUNCTION public.agent_code(spec jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
SELECT CASE WHEN spec ->> 'engine' = 'code'
            THEN 'code:' || split_part(spec #>> '{engine_config,agent}', ':', 1) END
$$;

CREATE FUNCTION public.agent_needs(spec jsonb) RETURNS text[]
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    AS $$
SELECT array_agg(n.need ORDER BY n.need COLLATE "C")
  FROM (SELECT c.name AS need
          FROM jsonb_object_keys(CASE WHEN jsonb_typeof(spec -> 'capabilities') = 'object'
                                      THEN spec -> 'capabilities' ELSE '{}' END) AS c (name)
         WHERE starts_with(c.name, 'project:')
        UNION
        SELECT 'code:' || split_part(spec #>> '{engine_config,agent}', ':', 1)
         WHERE spec ->> 'engine' = 'code' AND spec #>> '{engine_config,agent}' IS NOT NULL) n
$$;

CREATE FUNCTION public.delete_audit(of_tenant text, older_than_days integer, most integer) RETURNS integer
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    young timestamptz := now() - make_interval(days => older_than_days);
    gone int := 0;
    batch int;
    chain record;
    last record;
BEGIN
    PERFORM pg_advisory_xact_lock(hashtextextended('nova audit chains', 0));
    IF of_tenant IS NOT NULL THEN
        IF NOT EXISTS (SELECT FROM tenants t WHERE t.id = of_tenant AND t.ending_at IS NOT NULL) THEN
            RAISE EXCEPTION 'The tenant % was not ended.', of_tenant USING ERRCODE = 'insufficient_privilege';
        END IF;
        DELETE FROM audit_events
         WHERE id = ANY (ARRAY(SELECT e.id FROM audit_events e WHERE e.tenant_id = of_tenant LIMIT most));
        GET DIAGNOSTICS gone = ROW_COUNT;
        IF gone < most THEN
            DELETE FROM audit_chains c WHERE c.tenant_id = of_tenant;
        END IF;
        RETURN gone;
    END IF;
    IF older_than_days IS NULL OR older_than_days < 1 THEN
        RAISE EXCEPTION 'Records of the last day are kept.' USING ERRCODE = 'insufficient_privilege';
    END IF;
    WHILE gone < most LOOP
        SELECT c.* INTO chain
          FROM audit_chains c
         CROSS JOIN LATERAL (SELECT e.at FROM audit_events e
                              WHERE e.tenant_id = c.tenant_id AND e.seq > c.anchor_seq
                              ORDER BY e.seq
                              LIMIT 1) first
         WHERE first.at < young
         LIMIT 1;
        EXIT WHEN NOT FOUND;
        SELECT e.* INTO last
          FROM (SELECT o.*, bool_and(o.at < young) OVER (ORDER BY o.seq) AS is_due
                  FROM (SELECT * FROM audit_events o
                         WHERE o.tenant_id = chain.tenant_id AND o.seq > chain.anchor_seq
                         ORDER BY o.seq
                         LIMIT most - gone) o) e
         WHERE e.is_due
         ORDER BY e.seq DESC
         LIMIT 1;
        DELETE FROM audit_events e
         WHERE e.tenant_id = chain.tenant_id AND e.seq > chain.anchor_seq AND e.seq <= last.seq;
        GET DIAGNOSTICS batch = ROW_COUNT;
        gone := gone + batch;
        UPDATE audit_chains c SET anchor_seq = last.seq, anchor_hash = last.hash WHERE c.tenant_id = chain.tenant_id;
        INSERT INTO audit_events (id, tenant_id, actor_kind, actor_id, actor_name, action, target_kind, target_id,
                                  arguments_hash, times)
        VALUES ('aud_' || lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000000)::bigint), 14, '0')
                       || left(replace(gen_random_uuid()::text, '-', ''), 12),
                chain.tenant_id, 'command', 'retention', 'retention', 'audit.deleted', 'audit', last.seq::text,
                encode(last.hash, 'hex'), batch);
    END LOOP;
    RETURN gone;
END
$$;

CREATE FUNCTION public.deliver_audit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    digits text := '0123456789ABCDEFGHJKMNPQRSTVWXYZ';
    made_ms bigint := extract(epoch FROM now()) * 1000;
    before int := COALESCE(NULLIF(current_setting('nova.audit_records', true), ''), '0');
BEGIN
    IF NOT EXISTS (SELECT FROM webhooks w
                    WHERE w.tenant_id = NEW.tenant_id AND w.enabled AND 'audit_recorded' = ANY (w.kinds)) THEN
        RETURN NULL;
    END IF;
    PERFORM set_config('nova.audit_records', (before + 1)::text, true);
    INSERT INTO deliveries (id, tenant_id, kind, target, payload, webhook_id)
    SELECT 'dlv_' || (SELECT string_agg(substr(digits, (made_ms >> 5 * at & 31)::int + 1, 1), '' ORDER BY at DESC)
                        FROM generate_series(0, 9) AS at)
                  || upper(lpad(to_hex(before / 100), 4, '0') || left(md5(w.id || '/' || pg_current_xact_id()), 12)),
           w.tenant_id, 'audit_recorded', w.id, jsonb_build_object('ids', jsonb_build_array(NEW.id)), w.id
      FROM webhooks w
     WHERE w.tenant_id = NEW.tenant_id AND w.enabled AND 'audit_recorded' = ANY (w.kinds)
        ON CONFLICT (id) DO UPDATE
       SET payload = jsonb_build_object('ids', (deliveries.payload -> 'ids') || (EXCLUDED.payload -> 'ids'));
    RETURN NULL;
END
$$;

CREATE FUNCTION public.keep_ceilings() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    RAISE EXCEPTION 'only operators change the ceilings of tenant %', OLD.id USING ERRCODE = 'insufficient_privilege';
END
$$;

CREATE FUNCTION public.message_folded(content text) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN (octet_length(content) = char_length(content)) THEN lower(content) ELSE replace(replace(replace(translate(lower(NORMALIZE(regexp_replace(NORMALIZE(content, NFKD), '[\u0300-\u036f]'::text, ''::text, 'g'::text), NFKC)), 'øłđħıŧ'::text, 'oldhit'::text), 'ß'::text, 'ss'::text), 'æ'::text, 'ae'::text), 'œ'::text, 'oe'::text) END;

CREATE FUNCTION public.message_part_shares() RETURNS TABLE(gram text, share real)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
SELECT e.gram, e.share
  FROM pg_stats s
 CROSS JOIN LATERAL unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS e (gram, share)
 WHERE s.schemaname = current_schema() AND s.tablename = 'ix_message_texts__parts'
$$;

CREATE FUNCTION public.message_parts(tenant_id text, agent_id text, content text) RETURNS tsvector
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN array_to_tsvector(((ARRAY[('@'::text || tenant_id), ((('@'::text || tenant_id) || '/'::text) || agent_id)] || (SELECT array_agg(substr(w.w[1], i.i, 3)) AS array_agg FROM regexp_matches(public.message_folded(message_parts.content), '[0-9a-z\u00aa\u00b5\u00ba\u00c0-\u1fff\u2c00-\u2dff\ua640-\uabff\U00010000-\U0001ffff]{3,}'::text, 'g'::text) w(w), LATERAL generate_series(1, (LEAST(char_length(w.w[1]), 500) - 2)) i(i))) || (SELECT array_agg(substr(w.w[1], i.i, 2)) AS array_agg FROM regexp_matches(CASE WHEN (octet_length(message_parts.content) > char_length(message_parts.content)) THEN public.message_folded(message_parts.content) ELSE NULL::text END, '[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+'::text, 'g'::text) w(w), LATERAL generate_series(1, LEAST(char_length(w.w[1]), 4000)) i(i))));

CREATE FUNCTION public.message_parts_asked(asked text) RETURNS TABLE(part text, grams text[], query tsquery, is_exact boolean)
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    BEGIN ATOMIC
 SELECT found.part,
     found.grams,
     (( SELECT string_agg(((''''::text || gram.gram) || ''''::text), ' & '::text) AS string_agg
            FROM unnest(found.grams) gram(gram)))::tsquery AS string_agg,
     (cardinality(found.grams) = 1)
    FROM ( SELECT DISTINCT w.w[1] AS part,
             ( SELECT array_agg(DISTINCT substr(w.w[1], i.i, 3)) AS array_agg
                    FROM generate_series(1, (char_length(w.w[1]) - 2)) i(i)) AS grams
            FROM regexp_matches(public.message_folded(message_parts_asked.asked), '[0-9a-z\u00aa\u00b5\u00ba\u00c0-\u1fff\u2c00-\u2dff\ua640-\uabff\U00010000-\U0001ffff]{3,}'::text, 'g'::text) w(w)
         UNION
          SELECT DISTINCT w.w[1] AS w,
             ( SELECT array_agg(DISTINCT substr(w.w[1], i.i, 2)) AS array_agg
                    FROM generate_series(1, (char_length(w.w[1]) - 1)) i(i)) AS array_agg
            FROM regexp_matches(public.message_folded(message_parts_asked.asked), '[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+'::text, 'g'::text) w(w)
           WHERE (char_length(w.w[1]) > 1)
         UNION
          SELECT DISTINCT substr(w.w[1], i.i, 2) AS substr,
             ARRAY[substr(w.w[1], i.i, 2)] AS "array"
            FROM regexp_matches(public.message_folded(message_parts_asked.asked), '[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+'::text, 'g'::text) w(w),
             LATERAL generate_series(1, (char_length(w.w[1]) - 1)) i(i)) found
 UNION ALL
  SELECT w.w[1] AS w,
     ARRAY[w.w[1]] AS "array",
     (((''''::text || w.w[1]) || ''':*'::text))::tsquery AS tsquery,
     true
    FROM regexp_matches(public.message_folded(message_parts_asked.asked), '[\u3005-\u3007\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]+'::text, 'g'::text) w(w)
   WHERE (char_length(w.w[1]) = 1);
END;

CREATE FUNCTION public.message_word_shares() RETURNS TABLE(lexeme text, share real)
    LANGUAGE sql STABLE SECURITY DEFINER
    SET search_path TO '$user', 'public'
    AS $$
SELECT e.lexeme, e.share
  FROM pg_stats s
 CROSS JOIN LATERAL unnest(s.most_common_elems::text::text[], s.most_common_elem_freqs) AS e (lexeme, share)
 WHERE s.schemaname = current_schema() AND s.tablename = 'message_texts' AND s.attname = 'words'
$$;

CREATE FUNCTION public.record_act(done text, kind text, target text, arguments text, of_tenant text DEFAULT NULL::text, repeated integer DEFAULT 1) RETURNS void
    LANGUAGE sql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
    INSERT INTO audit_events (id, tenant_id, actor_kind, actor_id, actor_name, address, trace_id, run_id,
                              action, target_kind, target_id, arguments_hash, times)
    SELECT 'aud_' || lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000000)::bigint), 14, '0') || left(replace(gen_random_uuid()::text, '-', ''), 12), COALESCE(of_tenant, actor ->> 'tenant_id'), actor ->> 'kind', actor ->> 'id', actor ->> 'name',
           actor ->> 'address', actor ->> 'trace_id', actor ->> 'run_id', done, kind, target, arguments, repeated
      FROM (SELECT NULLIF(current_setting('nova.actor', true), '')::jsonb) AS of_session (actor)
     WHERE actor IS NOT NULL
$$;

CREATE FUNCTION public.record_answer() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
BEGIN
    PERFORM record_act(
        CASE WHEN NEW.kind = 'user' THEN 'question.answered'
             WHEN (NEW.answer ->> 'approve')::boolean THEN 'approval.granted'
             ELSE 'approval.refused' END,
        'run', NEW.run_id || '/' || NEW.id,
        encode(sha256(convert_to(
            jsonb_build_object('request', NEW.request, 'answer', NEW.answer)::text, 'UTF8')), 'hex'));
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_audit() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    rule jsonb := TG_ARGV[0];
    actor jsonb := current_setting('nova.actor');
    before jsonb := CASE WHEN TG_OP = 'INSERT' THEN '{}' ELSE to_jsonb(OLD) END;
    after jsonb := CASE WHEN TG_OP = 'DELETE' THEN '{}' ELSE to_jsonb(NEW) END;
    thing jsonb := CASE WHEN TG_OP = 'DELETE' THEN before ELSE after END;
    verb text;
    changed text[] := '{}';
BEGIN
    IF rule -> 'unless' <> '{}' AND thing @> (rule -> 'unless') THEN
        RETURN NULL;
    END IF;
    SELECT m.mark ->> 1 INTO verb FROM jsonb_array_elements(rule -> 'marks') WITH ORDINALITY AS m (mark, place)
     WHERE after ->> (m.mark ->> 0) IS NOT NULL AND before ->> (m.mark ->> 0) IS NULL
     ORDER BY m.place
     LIMIT 1;
    IF verb IS NULL AND TG_OP = 'UPDATE' THEN
        SELECT array_agg(n.name ORDER BY n.name) INTO changed
          FROM jsonb_each(after) a
         CROSS JOIN LATERAL (
            SELECT a.key || COALESCE('.' || part.key, '') AS name
              FROM (SELECT rule -> 'documents' ? a.key AND jsonb_typeof(a.value) = 'object'
                       AND jsonb_typeof(before -> a.key) = 'object' AS in_parts) d
              LEFT JOIN LATERAL jsonb_each(CASE WHEN in_parts THEN (before -> a.key) || a.value ELSE '{}' END) part
                ON true
             WHERE NOT in_parts
                OR NULLIF(a.value -> part.key, 'null') IS DISTINCT FROM NULLIF(before -> a.key -> part.key, 'null')
         ) n
         WHERE a.value IS DISTINCT FROM before -> a.key AND NOT rule -> 'bookkeeping' ? a.key;
        IF changed IS NULL THEN
            RETURN NULL;
        END IF;
    END IF;
    verb := COALESCE(verb, CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'deleted' ELSE 'updated' END);
    INSERT INTO audit_events (id, tenant_id, actor_kind, actor_id, actor_name, address, trace_id, run_id,
                              action, target_kind, target_id, fields)
    VALUES ('aud_' || lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000000)::bigint), 14, '0') || left(replace(gen_random_uuid()::text, '-', ''), 12),
            COALESCE(NULLIF(thing ->> (rule ->> 'tenant'), ''), actor ->> 'tenant_id'),
            actor ->> 'kind', actor ->> 'id', actor ->> 'name', actor ->> 'address', actor ->> 'trace_id',
            actor ->> 'run_id',
            (rule ->> 'kind') || '.' || verb, rule ->> 'kind',
            (SELECT string_agg(thing ->> i.name, '/' ORDER BY i.place)
               FROM jsonb_array_elements_text(rule -> 'id') WITH ORDINALITY AS i (name, place)),
            changed);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_deliveries() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'delivery', NEW.id,
            CASE TG_OP WHEN 'INSERT' THEN 'created' ELSE NEW.status END,
            NEW.agent_id, NEW.thread_id);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_feedback() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'feedback', NEW.id,
            CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'deleted' ELSE 'updated' END,
            NEW.agent_id, NEW.thread_id);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_orchestration_agents() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'orchestration', NEW.orchestration_id,
            'agents',
            NULL, NULL);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_orchestrations() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'orchestration', NEW.id,
            CASE WHEN NEW.finished_at IS NOT NULL THEN 'finished' WHEN TG_OP = 'INSERT' THEN 'created' ELSE 'continued' END,
            NEW.agent_id, NEW.thread_id);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_run_waits() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'wait', NEW.run_id,
            NEW.status,
            NULL, NULL);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_runs() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'run', NEW.id,
            CASE WHEN NEW.hold IS NULL THEN NEW.status ELSE 'held' END,
            NEW.agent_id, NEW.thread_id);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_switches() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'pause', NEW.scope,
            CASE TG_OP WHEN 'DELETE' THEN 'resumed' ELSE 'paused' END,
            NULLIF(NEW.target, ''), NULL);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_tasks() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'task', NEW.id::text,
            CASE WHEN TG_OP = 'INSERT' THEN 'created' WHEN OLD.status <> NEW.status THEN NEW.status WHEN OLD.parked_reason IS NULL AND NEW.parked_reason IS NOT NULL THEN 'parked' ELSE 'updated' END,
            NEW.owner_agent_id, NEW.thread_id);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_threads() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'thread', NEW.id,
            CASE WHEN NEW.deleted_at IS NULL THEN 'updated' ELSE 'deleted' END,
            NEW.agent_id, NEW.id);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_trigger_firings() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'trigger', NEW.trigger_id,
            NEW.outcome,
            NULL, NULL);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_triggers() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'trigger', NEW.id,
            CASE WHEN NEW.deleted_at IS NOT NULL THEN 'deleted' WHEN TG_OP = 'INSERT' THEN 'created' WHEN OLD.paused_reason IS NULL AND NEW.paused_reason IS NOT NULL THEN 'paused' ELSE 'updated' END,
            NEW.agent_id, NEW.thread_id);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_change_of_webhooks() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (NEW.tenant_id, pg_current_xact_id()::text::bigint, 'webhook', NEW.id,
            CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'deleted' ELSE 'updated' END,
            NEW.agent_id, NULL);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_end_of_feedback() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (OLD.tenant_id, pg_current_xact_id()::text::bigint, 'feedback', OLD.id,
            CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'deleted' ELSE 'updated' END,
            OLD.agent_id, OLD.thread_id);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_end_of_switches() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (OLD.tenant_id, pg_current_xact_id()::text::bigint, 'pause', OLD.scope,
            CASE TG_OP WHEN 'DELETE' THEN 'resumed' ELSE 'paused' END,
            NULLIF(OLD.target, ''), NULL);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.record_end_of_webhooks() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO public.changes (tenant_id, xact, subject, subject_id, change, agent_id, thread_id)
    VALUES (OLD.tenant_id, pg_current_xact_id()::text::bigint, 'webhook', OLD.id,
            CASE TG_OP WHEN 'INSERT' THEN 'created' WHEN 'DELETE' THEN 'deleted' ELSE 'updated' END,
            OLD.agent_id, NULL);
    RETURN NULL;
END
$$;

CREATE FUNCTION public.seal_audit(most integer) RETURNS TABLE(of_tenant text, last_seq bigint, last_hash bytea, at timestamp with time zone, records integer)
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path TO 'public', 'pg_temp'
    AS $$
DECLARE
    ids text[];
    found record;
BEGIN
    IF NOT pg_try_advisory_xact_lock(hashtextextended('nova audit chains', 0)) THEN
        RETURN;
    END IF;
    at := clock_timestamp();
    FOR of_tenant, ids IN
        SELECT u.tenant_id, array_agg(u.id)
          FROM (SELECT e.tenant_id, e.id FROM audit_events e WHERE e.seq IS NULL ORDER BY e.id LIMIT most) u
         GROUP BY u.tenant_id
    LOOP
        INSERT INTO audit_chains (tenant_id) VALUES (of_tenant) ON CONFLICT DO NOTHING;
        SELECT c.seq, c.hash INTO last_seq, last_hash FROM audit_chains c WHERE c.tenant_id = of_tenant;
        records := cardinality(ids);
        FOR found IN SELECT * FROM audit_events e WHERE e.id = ANY (ids) ORDER BY e.id LOOP
            last_seq := last_seq + 1;
            last_hash := sha256(last_hash || convert_to(jsonb_build_array(
                last_seq, found.id, found.tenant_id, (extract(epoch FROM found.at) * 1000000)::bigint,
                found.actor_kind, found.actor_id, found.actor_name, found.address, found.trace_id, found.run_id,
                found.action, found.target_kind, found.target_id, to_jsonb(found.fields), found.arguments_hash,
                found.times
            )::text, 'UTF8'));
            UPDATE audit_events e SET seq = last_seq, hash = last_hash WHERE e.id = found.id;
        END LOOP;
        UPDATE audit_chains c SET seq = last_seq, hash = last_hash, sealed_at = at WHERE c.tenant_id = of_tenant;
        RETURN NEXT;
    END LOOP;
END
$$;

CREATE TABLE public.agent_versions (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    spec jsonb NOT NULL,
    created_by text DEFAULT 'person'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    renamed_from text COLLATE pg_catalog."C"
);

COMMENT ON TABLE public.agent_versions IS 'One version of an agent''s configuration. Immutable; a run records the version that it used.';

COMMENT ON COLUMN public.agent_versions.created_by IS 'person, seed, or the id of an agent';

COMMENT ON COLUMN public.agent_versions.renamed_from IS 'The id before, of a version that a rename made';

CREATE TABLE public.agents (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    version integer DEFAULT 1 NOT NULL,
    spec jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    max_running integer GENERATED ALWAYS AS (((spec ->> 'max_running'::text))::integer) STORED,
    max_cost_usd_per_day numeric(18,8) GENERATED ALWAYS AS (((spec ->> 'max_cost_usd_per_day'::text))::numeric) STORED,
    renamed_to text COLLATE pg_catalog."C",
    directory text COLLATE pg_catalog."C",
    needs text[] GENERATED ALWAYS AS (public.agent_needs(spec)) STORED,
    code text GENERATED ALWAYS AS (public.agent_code(spec)) STORED
);

COMMENT ON TABLE public.agents IS 'An agent with the configuration of its newest version, copied here for one-row reads.';

COMMENT ON COLUMN public.agents.id IS 'Slug, unique within the tenant';

COMMENT ON COLUMN public.agents.spec IS 'contracts.agents.AgentSpec';

COMMENT ON COLUMN public.agents.max_running IS 'Generated from spec';

COMMENT ON COLUMN public.agents.max_cost_usd_per_day IS 'Generated from spec';

COMMENT ON COLUMN public.agents.renamed_to IS 'This is a former id: of which agent';

COMMENT ON COLUMN public.agents.directory IS 'Name of its directory, if not its id: it was renamed';

COMMENT ON COLUMN public.agents.needs IS 'Generated from spec: the projects and code that its runs need; null is none';

COMMENT ON COLUMN public.agents.code IS 'Generated from spec: of an agent in Python, its code';

CREATE TABLE public.alembic_version (
    version_num character varying(32) NOT NULL
);

COMMENT ON TABLE public.alembic_version IS '0012';

CREATE TABLE public.api_keys (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    prefix text NOT NULL,
    hash bytea NOT NULL,
    scopes text[] DEFAULT '{}'::text[] NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone,
    revoked_at timestamp with time zone,
    last_used_at timestamp with time zone,
    last_used_address text,
    role text,
    networks text[] DEFAULT '{}'::text[] NOT NULL,
    replaced_by text COLLATE pg_catalog."C",
    person_id text COLLATE pg_catalog."C"
);

COMMENT ON TABLE public.api_keys IS 'A bearer key. Only its SHA-256 is kept: 256 random bits need no slow hash.';

COMMENT ON COLUMN public.api_keys.prefix IS 'First characters of the key, to recognise it by';

COMMENT ON COLUMN public.api_keys.hash IS 'SHA-256 of the whole key';

COMMENT ON COLUMN public.api_keys.scopes IS 'See contracts.http.scopes.Scope';

COMMENT ON COLUMN public.api_keys.last_used_at IS 'Written at most once a minute';

COMMENT ON COLUMN public.api_keys.last_used_address IS 'Of the client that used it then';

COMMENT ON COLUMN public.api_keys.role IS 'The role that it was made with; its scopes are those of that time';

COMMENT ON COLUMN public.api_keys.networks IS 'CIDRs of the clients that may use it; empty: all';

COMMENT ON COLUMN public.api_keys.replaced_by IS 'The key that it was rotated to';

COMMENT ON COLUMN public.api_keys.person_id IS 'The person whose session it is of';

CREATE TABLE public.audit_chains (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    seq bigint DEFAULT 0 NOT NULL,
    hash bytea DEFAULT '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea NOT NULL,
    sealed_at timestamp with time zone DEFAULT now() NOT NULL,
    anchor_seq bigint DEFAULT 0 NOT NULL,
    anchor_hash bytea DEFAULT '\x0000000000000000000000000000000000000000000000000000000000000000'::bytea NOT NULL
);

COMMENT ON TABLE public.audit_chains IS 'The chain over a tenant''s records: its head, and its anchor where older records were deleted.';

COMMENT ON COLUMN public.audit_chains.seq IS 'Number of the last record that was sealed';

COMMENT ON COLUMN public.audit_chains.hash IS 'Of that record';

COMMENT ON COLUMN public.audit_chains.anchor_seq IS 'Number of the last record that retention deleted; 0 for none';

COMMENT ON COLUMN public.audit_chains.anchor_hash IS 'Of that record, to which the first one that is left is chained';

CREATE TABLE public.audit_events (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    at timestamp with time zone DEFAULT now() NOT NULL,
    actor_kind text NOT NULL,
    actor_id text NOT NULL COLLATE pg_catalog."C",
    address text,
    trace_id text,
    run_id text COLLATE pg_catalog."C",
    action text NOT NULL,
    target_kind text NOT NULL,
    target_id text NOT NULL,
    fields text[] DEFAULT '{}'::text[] NOT NULL,
    actor_name text,
    arguments_hash text,
    times integer DEFAULT 1 NOT NULL,
    seq bigint,
    hash bytea
);

COMMENT ON TABLE public.audit_events IS 'What a key, an agent or a command did: who, what, which thing, from where. Sealed once, and never changed.';

COMMENT ON COLUMN public.audit_events.actor_kind IS 'key, person, agent or command';

COMMENT ON COLUMN public.audit_events.address IS 'Of the client whose request it was; of a command the machine';

COMMENT ON COLUMN public.audit_events.trace_id IS 'Of the request, as in logs and traces';

COMMENT ON COLUMN public.audit_events.run_id IS 'The run whose agent did it';

COMMENT ON COLUMN public.audit_events.action IS 'Kind of the thing and a verb, such as agent.updated';

COMMENT ON COLUMN public.audit_events.fields IS 'Names of columns that an update changed; never their values';

COMMENT ON COLUMN public.audit_events.actor_name IS 'Of the key at that time; of an agent or a command its id';

COMMENT ON COLUMN public.audit_events.arguments_hash IS 'SHA-256 of what was decided, given or asked for, in hex';

COMMENT ON COLUMN public.audit_events.times IS 'How often, where equal ones are one record';

COMMENT ON COLUMN public.audit_events.seq IS 'Number in the tenant''s chain; null until it is sealed';

COMMENT ON COLUMN public.audit_events.hash IS 'Over this record and the hash before';

CREATE TABLE public.changes (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    xact bigint NOT NULL,
    id bigint NOT NULL,
    subject text NOT NULL,
    subject_id text NOT NULL COLLATE pg_catalog."C",
    change text NOT NULL,
    agent_id text COLLATE pg_catalog."C",
    thread_id text COLLATE pg_catalog."C",
    at timestamp with time zone DEFAULT clock_timestamp() NOT NULL
);

COMMENT ON TABLE public.changes IS 'One change of a thing that people follow. Its readers take it once all older transactions have ended.';

COMMENT ON COLUMN public.changes.tenant_id IS 'Empty for a pause of the fleet';

COMMENT ON COLUMN public.changes.xact IS 'The transaction, as pg_current_xact_id has it';

COMMENT ON COLUMN public.changes.subject IS 'base.vocabulary.ChangeSubject';

COMMENT ON COLUMN public.changes.change IS 'Its new state, or a verb';

ALTER TABLE public.changes ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.changes_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.channel_pairings (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    channel text NOT NULL,
    sender text NOT NULL,
    name text NOT NULL,
    code_hash bytea NOT NULL,
    code_expires_at timestamp with time zone NOT NULL,
    asked_at timestamp with time zone DEFAULT now() NOT NULL,
    paired_at timestamp with time zone
);

COMMENT ON TABLE public.channel_pairings IS 'A person who asks to write to a channel, or may.';

COMMENT ON COLUMN public.channel_pairings.sender IS 'The person''s id in the channel, which the channel has verified';

COMMENT ON COLUMN public.channel_pairings.name IS 'What the person calls itself there';

COMMENT ON COLUMN public.channel_pairings.code_hash IS 'SHA-256 of the code that confirms it';

COMMENT ON COLUMN public.channel_pairings.paired_at IS 'When it was confirmed; null while it is only asked for';

CREATE TABLE public.compactions (
    turn_id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    summary text NOT NULL,
    summarized_through_turn_id text NOT NULL COLLATE pg_catalog."C",
    first_kept_turn_id text COLLATE pg_catalog."C",
    turns_summarized integer DEFAULT 0 NOT NULL,
    model text NOT NULL,
    provider text NOT NULL,
    tokens_before bigint DEFAULT 0 NOT NULL,
    tokens_after bigint DEFAULT 0 NOT NULL,
    summary_tokens bigint DEFAULT 0 NOT NULL,
    summarization_input_tokens bigint DEFAULT 0 NOT NULL,
    summarization_output_tokens bigint DEFAULT 0 NOT NULL,
    duration_ms bigint DEFAULT 0 NOT NULL,
    trigger text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    through_step integer
);

COMMENT ON TABLE public.compactions IS 'What a compaction turn replaced, and what it cost.';

COMMENT ON COLUMN public.compactions.trigger IS 'context_limit or overflow_recovery';

COMMENT ON COLUMN public.compactions.through_step IS 'The last step of the next turn that the summary covers, if any';

CREATE TABLE public.deliveries (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    run_id text COLLATE pg_catalog."C",
    kind text NOT NULL,
    target text NOT NULL,
    payload jsonb NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    delivered_at timestamp with time zone,
    agent_id text COLLATE pg_catalog."C",
    thread_id text COLLATE pg_catalog."C",
    webhook_id text COLLATE pg_catalog."C",
    response_status integer,
    routed boolean DEFAULT false NOT NULL,
    claims integer DEFAULT 0 NOT NULL,
    CONSTRAINT ck_deliveries__kind CHECK ((kind = ANY (ARRAY['notification'::text, 'file'::text, 'note'::text, 'question'::text, 'approval'::text, 'run_completed'::text, 'work_order_completed'::text, 'work_order_review'::text, 'audit_recorded'::text, 'task_changed'::text, 'test'::text, 'feedback_given'::text]))),
    CONSTRAINT ck_deliveries__status CHECK ((status = ANY (ARRAY['pending'::text, 'delivered'::text, 'failed'::text, 'closed'::text])))
);
ALTER TABLE ONLY public.deliveries ALTER COLUMN status SET STATISTICS 0;

COMMENT ON TABLE public.deliveries IS 'One item of the outbox or the inbox, delivered at least once.';

COMMENT ON COLUMN public.deliveries.target IS 'user is the inbox, else the id of a webhook, the name of a channel, or a lane of push notifications';

COMMENT ON COLUMN public.deliveries.due_at IS 'Earliest attempt; during an attempt, the end of the sender''s lease';

COMMENT ON COLUMN public.deliveries.webhook_id IS 'The webhook that it is sent to, if any';

COMMENT ON COLUMN public.deliveries.response_status IS 'HTTP status of the latest answer';

COMMENT ON COLUMN public.deliveries.routed IS 'For the inbox: whether each channel that receives it has a row';

CREATE TABLE public.effects (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    "position" integer DEFAULT 0 NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    error text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    done_at timestamp with time zone,
    claims integer DEFAULT 0 NOT NULL,
    CONSTRAINT ck_effects__kind CHECK (((kind = ANY (ARRAY['delivery'::text, 'embeddings'::text, 'title'::text])) OR (POSITION((':'::text) IN (kind)) > 1))),
    CONSTRAINT ck_effects__status CHECK ((status = ANY (ARRAY['pending'::text, 'running'::text, 'done'::text, 'failed'::text])))
)
WITH (fillfactor='80');
ALTER TABLE ONLY public.effects ALTER COLUMN status SET STATISTICS 0;

COMMENT ON TABLE public.effects IS 'One piece of post-run work. A run''s effects are executed in the order of `position`.';

COMMENT ON COLUMN public.effects.due_at IS 'Pending: earliest start. Running: end of its lease, after which it is due again';

CREATE TABLE public.embeddings (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    message_id text NOT NULL COLLATE pg_catalog."C",
    model text NOT NULL,
    dimensions integer NOT NULL,
    embedding public.vector NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    said_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.embeddings IS 'The vector of one message.';

COMMENT ON COLUMN public.embeddings.said_at IS 'When the message was written';

CREATE TABLE public.engine_sessions (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    parent_id text COLLATE pg_catalog."C",
    engine text NOT NULL,
    entries jsonb NOT NULL,
    fingerprint text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.engine_sessions IS 'What one turn added to the transcript of an SDK that keeps its own.';

COMMENT ON COLUMN public.engine_sessions.parent_id IS 'Null if the entries are the whole transcript';

COMMENT ON COLUMN public.engine_sessions.entries IS 'In the SDK''s format';

COMMENT ON COLUMN public.engine_sessions.fingerprint IS 'Of the ledger''s messages that the session contains';

CREATE TABLE public.feedback (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    step integer,
    thread_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    agent_version integer,
    name text NOT NULL,
    score double precision,
    label text,
    comment text,
    source text NOT NULL,
    author text DEFAULT ''::text NOT NULL,
    key_id text NOT NULL COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_feedback__source CHECK ((source = ANY (ARRAY['person'::text, 'user'::text, 'code'::text])))
);

COMMENT ON TABLE public.feedback IS 'A score, a label or a comment on a run or on one step of it: one of each name by each author.';

COMMENT ON COLUMN public.feedback.step IS 'Index of the step that it is about; null is the run';

COMMENT ON COLUMN public.feedback.agent_version IS 'That the run used';

COMMENT ON COLUMN public.feedback.name IS 'What was judged, such as rating or helpfulness';

COMMENT ON COLUMN public.feedback.score IS 'From -1 to 1';

COMMENT ON COLUMN public.feedback.source IS 'person, user or code';

COMMENT ON COLUMN public.feedback.author IS 'The person or program, as the client names it; empty is the key itself';

COMMENT ON COLUMN public.feedback.key_id IS 'The key of the request, or the person of its session';

CREATE TABLE public.idempotency_keys (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    key text NOT NULL,
    run_id text NOT NULL COLLATE pg_catalog."C",
    body_hash bytea NOT NULL,
    expires_at timestamp with time zone NOT NULL
);

COMMENT ON TABLE public.idempotency_keys IS 'An Idempotency-Key that was used, what its request made and a hash of the body it came with.';

COMMENT ON COLUMN public.idempotency_keys.run_id IS 'What it made: a run, or the id of a task, a trigger, a firing or an orchestration';

CREATE TABLE public.leases (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    holder text NOT NULL,
    fence bigint NOT NULL,
    state jsonb DEFAULT '{}'::jsonb NOT NULL,
    expires_at timestamp with time zone NOT NULL,
    token_hash bytea
);

COMMENT ON TABLE public.leases IS 'A time-limited right of one process of a client, and what the next holder continues from.';

COMMENT ON COLUMN public.leases.holder IS 'Describes the process, for people';

COMMENT ON COLUMN public.leases.fence IS 'Grows with each acquisition';

COMMENT ON COLUMN public.leases.token_hash IS 'SHA-256 of the token that proves who holds it';

CREATE TABLE public.memories (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    content text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.memories IS 'A fact that all agents of a tenant share.';

COMMENT ON COLUMN public.memories.agent_id IS 'The agent that saved it';

CREATE TABLE public.message_texts (
    message_id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    role text NOT NULL,
    content text NOT NULL,
    said_at timestamp with time zone NOT NULL,
    words tsvector GENERATED ALWAYS AS ((array_to_tsvector(ARRAY[('@'::text || tenant_id), ((('@'::text || tenant_id) || '/'::text) || agent_id)]) || to_tsvector('simple'::regconfig, content))) STORED NOT NULL
);

COMMENT ON TABLE public.message_texts IS 'The text of one message, for search by words.';

COMMENT ON COLUMN public.message_texts.role IS 'user or assistant';

COMMENT ON COLUMN public.message_texts.said_at IS 'When the message was written';

COMMENT ON COLUMN public.message_texts.words IS 'Words of the content, and marks of its tenant and agent';

CREATE TABLE public.messages (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    turn_id text NOT NULL COLLATE pg_catalog."C",
    run_id text COLLATE pg_catalog."C",
    seq integer NOT NULL,
    step integer,
    kind text NOT NULL,
    role text NOT NULL,
    content jsonb NOT NULL,
    event_id text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    used jsonb,
    context jsonb,
    CONSTRAINT ck_messages__kind CHECK ((kind = ANY (ARRAY['query'::text, 'response'::text, 'tool_results'::text, 'steering'::text, 'summary'::text])))
);

COMMENT ON TABLE public.messages IS 'One message of a turn, its content blocks as they went over the wire.';

COMMENT ON COLUMN public.messages.run_id IS 'For steering: the run whose message this was';

COMMENT ON COLUMN public.messages.seq IS 'Order within the turn; 0 is the query';

COMMENT ON COLUMN public.messages.step IS 'The step that it belongs to; null for the query';

COMMENT ON COLUMN public.messages.event_id IS '<attempt>-<seq> of the live event that closed its step';

COMMENT ON COLUMN public.messages.used IS 'Of a step''s last message: the turn''s usage so far';

COMMENT ON COLUMN public.messages.context IS 'Of a query: contracts.event_context.EventContext';

CREATE TABLE public.model_calls (
    turn_id text NOT NULL COLLATE pg_catalog."C",
    step integer NOT NULL,
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    form_id text COLLATE pg_catalog."C",
    parent_turn_id text COLLATE pg_catalog."C",
    requested_at timestamp with time zone,
    first_token_ms integer
);

COMMENT ON TABLE public.model_calls IS 'The model call of a step: what it was asked with, and when.';

COMMENT ON COLUMN public.model_calls.form_id IS 'In request_parts; null where the engine makes no requests';

COMMENT ON COLUMN public.model_calls.parent_turn_id IS 'The turn whose conversation came before, at that time';

COMMENT ON COLUMN public.model_calls.first_token_ms IS 'From the request until the response began';

CREATE TABLE public.model_judgements (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    judge text NOT NULL,
    status text NOT NULL,
    asked_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone,
    error text,
    scores jsonb DEFAULT '{}'::jsonb NOT NULL,
    judged_at timestamp with time zone,
    judged_by text,
    CONSTRAINT ck_model_judgements__status CHECK ((status = ANY (ARRAY['asking'::text, 'succeeded'::text, 'failed'::text])))
);

COMMENT ON TABLE public.model_judgements IS 'What a tenant''s judge, a model, was asked last about models, and what it last answered. At most once a day.';

COMMENT ON COLUMN public.model_judgements.judge IS 'The id of the model that was asked last';

COMMENT ON COLUMN public.model_judgements.status IS 'Of the last question';

COMMENT ON COLUMN public.model_judgements.error IS 'Why the last question had no valid answer';

COMMENT ON COLUMN public.model_judgements.scores IS 'Of the last valid answer: by model and category, 0 to 1';

COMMENT ON COLUMN public.model_judgements.judged_at IS 'When `scores` were given';

COMMENT ON COLUMN public.model_judgements.judged_by IS 'The model that gave `scores`';

CREATE TABLE public.model_rankings (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    category text NOT NULL,
    model text NOT NULL,
    samples integer DEFAULT 0 NOT NULL,
    success_rate double precision NOT NULL,
    mean_cost_usd numeric(18,8),
    mean_duration_ms double precision,
    score double precision NOT NULL,
    refreshed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_model_rankings__category CHECK ((category = ANY (ARRAY['architecture'::text, 'complex-reasoning'::text, 'coding'::text, 'code-review'::text, 'planning'::text, 'tool-use'::text, 'exploration'::text, 'simple-tasks'::text, 'general'::text, 'agentic'::text, 'search'::text, 'documentation'::text])))
);

COMMENT ON TABLE public.model_rankings IS 'How a model did in a kind of work, in agents of a tenant''s orchestrations. Recomputed daily from their runs.';

COMMENT ON COLUMN public.model_rankings.model IS 'As usage names it';

COMMENT ON COLUMN public.model_rankings.samples IS 'Ended runs; those that failed for reasons of the fleet are left out';

COMMENT ON COLUMN public.model_rankings.mean_cost_usd IS 'Of a run; null if no cost is known';

COMMENT ON COLUMN public.model_rankings.mean_duration_ms IS 'Of a run';

COMMENT ON COLUMN public.model_rankings.score IS '0 to 1: success, with cost and time in relation to the best of the category';

CREATE TABLE public.notes (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    title text NOT NULL,
    content text DEFAULT ''::text NOT NULL,
    shared boolean DEFAULT false NOT NULL,
    pinned boolean DEFAULT false NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.notes IS 'A markdown document owned by an agent.';

COMMENT ON COLUMN public.notes.shared IS 'Whether people see it';

CREATE TABLE public.orchestration_agents (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    orchestration_id text NOT NULL COLLATE pg_catalog."C",
    parent_id text COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    role text NOT NULL,
    state text DEFAULT 'PENDING'::text NOT NULL,
    depth integer DEFAULT 0 NOT NULL,
    name text NOT NULL,
    prompt text NOT NULL,
    tools jsonb,
    model text,
    cwd text,
    plugins text[] DEFAULT '{}'::text[] NOT NULL,
    permission_mode text DEFAULT 'DEFAULT'::text NOT NULL,
    expert_id text,
    category text,
    spec jsonb NOT NULL,
    activations integer DEFAULT 1 NOT NULL,
    reasoning_ms bigint DEFAULT 0 NOT NULL,
    summary text,
    artifacts jsonb DEFAULT '{}'::jsonb NOT NULL,
    error_code text,
    error_message text,
    progress jsonb,
    state_at timestamp with time zone DEFAULT now() NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT ck_orchestration_agents__permission_mode CHECK ((permission_mode = ANY (ARRAY['DEFAULT'::text, 'ACCEPT_EDITS'::text, 'BYPASS'::text, 'PLAN'::text, 'DELEGATE'::text]))),
    CONSTRAINT ck_orchestration_agents__role CHECK ((role = ANY (ARRAY['MASTER'::text, 'WORKER'::text, 'EXPERT'::text, 'REVIEWER'::text]))),
    CONSTRAINT ck_orchestration_agents__state CHECK ((state = ANY (ARRAY['PENDING'::text, 'STARTING'::text, 'RUNNING'::text, 'WAITING_FOR_PARENT'::text, 'WAITING_FOR_CHILD'::text, 'WAITING_FOR_EXPERT'::text, 'COMPLETED'::text, 'FAILED'::text, 'KILLED'::text])))
);
ALTER TABLE ONLY public.orchestration_agents ALTER COLUMN state SET STATISTICS 0;

COMMENT ON TABLE public.orchestration_agents IS 'An agent of an orchestration: one thread, one run per activation.';

COMMENT ON COLUMN public.orchestration_agents.parent_id IS 'The agent that spawned it; null for the master';

COMMENT ON COLUMN public.orchestration_agents.run_id IS 'The run of its latest activation';

COMMENT ON COLUMN public.orchestration_agents.depth IS '0 for the master';

COMMENT ON COLUMN public.orchestration_agents.name IS 'For people';

COMMENT ON COLUMN public.orchestration_agents.prompt IS 'What its latest activation is to do';

COMMENT ON COLUMN public.orchestration_agents.tools IS 'Native tools that it may use; null is all of its trust';

COMMENT ON COLUMN public.orchestration_agents.plugins IS 'MCP servers, by name';

COMMENT ON COLUMN public.orchestration_agents.category IS 'Task category, for the ranking of models';

COMMENT ON COLUMN public.orchestration_agents.spec IS 'contracts.agents.AgentSpec that its runs use';

COMMENT ON COLUMN public.orchestration_agents.reasoning_ms IS 'Model time of this activation in attempts that ended';

COMMENT ON COLUMN public.orchestration_agents.summary IS 'Result of its latest activation';

COMMENT ON COLUMN public.orchestration_agents.error_code IS 'Why it failed: the code of an error';

COMMENT ON COLUMN public.orchestration_agents.progress IS 'Latest report_progress: status, percent, at';

COMMENT ON COLUMN public.orchestration_agents.state_at IS 'Latest change of state';

CREATE TABLE public.orchestration_configs (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    version integer NOT NULL,
    text text NOT NULL,
    models_text text DEFAULT ''::text NOT NULL,
    created_by text DEFAULT 'person'::text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.orchestration_configs IS 'One version of a tenant''s configuration of orchestrations. Immutable; the newest one applies.';

COMMENT ON COLUMN public.orchestration_configs.text IS 'YAML as its author wrote it';

COMMENT ON COLUMN public.orchestration_configs.models_text IS 'The models.yaml beside it';

COMMENT ON COLUMN public.orchestration_configs.created_by IS 'person or discovery';

CREATE TABLE public.orchestration_messages (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    orchestration_id text NOT NULL COLLATE pg_catalog."C",
    type text NOT NULL,
    source_id text COLLATE pg_catalog."C",
    target_id text NOT NULL COLLATE pg_catalog."C",
    correlation_id text,
    payload jsonb DEFAULT '{}'::jsonb NOT NULL,
    send_key text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    delivered_at timestamp with time zone,
    delivered_to text COLLATE pg_catalog."C",
    CONSTRAINT ck_orchestration_messages__type CHECK ((type = ANY (ARRAY['QUESTION'::text, 'ANSWER'::text, 'PROGRESS_UPDATE'::text, 'TASK_RESULT'::text, 'EXPERT_REQUEST'::text, 'EXPERT_RESPONSE'::text, 'PEER_REQUEST'::text, 'PEER_RESPONSE'::text, 'SPAWN_REQUEST'::text, 'KILL_SIGNAL'::text, 'USER_PROMPT'::text])))
);

COMMENT ON TABLE public.orchestration_messages IS 'A message from one agent of an orchestration to another. It is delivered to one wait or tool call, once.';

COMMENT ON COLUMN public.orchestration_messages.source_id IS 'The sending agent; null is a person';

COMMENT ON COLUMN public.orchestration_messages.correlation_id IS 'What it answers: a question, or the run of a child';

COMMENT ON COLUMN public.orchestration_messages.send_key IS 'Turn and tool call, or the run whose end it reports';

COMMENT ON COLUMN public.orchestration_messages.delivered_to IS 'The wait, or the run whose tool call received it';

CREATE TABLE public.orchestrations (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    master_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    task text NOT NULL,
    config jsonb DEFAULT '{}'::jsonb NOT NULL,
    limits jsonb DEFAULT '{}'::jsonb NOT NULL,
    config_version integer,
    queue text DEFAULT 'interactive'::text NOT NULL,
    source text DEFAULT 'api'::text NOT NULL,
    source_run_id text COLLATE pg_catalog."C",
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    deadline_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    finished_at timestamp with time zone,
    allowed_calls jsonb DEFAULT '[]'::jsonb NOT NULL,
    start_key text,
    report_thread_id text COLLATE pg_catalog."C",
    is_external boolean DEFAULT false NOT NULL,
    master_seen_at timestamp with time zone,
    master_waits jsonb DEFAULT '{}'::jsonb NOT NULL
);

COMMENT ON TABLE public.orchestrations IS 'One task for a tree of agents. Its row is locked by every transaction that routes messages in the tree.';

COMMENT ON COLUMN public.orchestrations.agent_id IS 'The agent whose trust, directories and budgets bound the tree';

COMMENT ON COLUMN public.orchestrations.thread_id IS 'Of its master; the orchestration is deleted with it';

COMMENT ON COLUMN public.orchestrations.config IS 'orchestration.config.OrchestrationConfig, frozen';

COMMENT ON COLUMN public.orchestrations.limits IS 'contracts.orchestration.OrchestrationLimits, frozen';

COMMENT ON COLUMN public.orchestrations.config_version IS 'Of the tenant''s; null without one';

COMMENT ON COLUMN public.orchestrations.source IS 'What started it';

COMMENT ON COLUMN public.orchestrations.source_run_id IS 'The run whose agent started it';

COMMENT ON COLUMN public.orchestrations.deadline_at IS 'End of its time budget';

COMMENT ON COLUMN public.orchestrations.finished_at IS 'When its master ended; null again after a continuation';

COMMENT ON COLUMN public.orchestrations.allowed_calls IS 'Tools, and shell commands, that a person allowed for all of its agents';

COMMENT ON COLUMN public.orchestrations.start_key IS 'Turn and tool call that started it';

COMMENT ON COLUMN public.orchestrations.report_thread_id IS 'The thread that gets a message when it ends';

COMMENT ON COLUMN public.orchestrations.is_external IS 'Its master is a program outside of the fleet, which acts over HTTP';

COMMENT ON COLUMN public.orchestrations.master_seen_at IS 'Latest request of an external master';

COMMENT ON COLUMN public.orchestrations.master_waits IS 'By call, what an external master waits for: contracts.waits.AwaitMessages';

CREATE TABLE public.people (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    issuer text NOT NULL,
    subject text NOT NULL,
    email text,
    name text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    signed_in_at timestamp with time zone NOT NULL
);

COMMENT ON TABLE public.people IS 'A person who came by single sign-on, in one tenant.';

COMMENT ON COLUMN public.people.issuer IS 'The provider that names the person';

COMMENT ON COLUMN public.people.subject IS 'The provider''s id of the person';

COMMENT ON COLUMN public.people.email IS 'As the last token has it';

CREATE TABLE public.project_items (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    project text NOT NULL,
    kind text NOT NULL,
    name text NOT NULL,
    resource_id text NOT NULL COLLATE pg_catalog."C",
    applied jsonb NOT NULL,
    applied_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_project_items__kind CHECK ((kind = ANY (ARRAY['agent'::text, 'skill'::text, 'trigger'::text])))
);

COMMENT ON TABLE public.project_items IS 'An agent, a skill or a trigger that a project contains.';

COMMENT ON COLUMN public.project_items.name IS 'An agent''s id, a skill''s name, a trigger''s key in the project';

COMMENT ON COLUMN public.project_items.resource_id IS 'The agent''s id, the skill''s name, the trigger''s id';

COMMENT ON COLUMN public.project_items.applied IS 'Its configuration as it was last applied; drift is what differs from it';

CREATE TABLE public.push_configs (
    run_id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL,
    secret bytea,
    key_id text,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.push_configs IS 'A URL that a client named for the changes of one run: a push notification configuration of the A2A protocol.';

COMMENT ON COLUMN public.push_configs.name IS 'Its id for the client: chosen by it, or made for it';

COMMENT ON COLUMN public.push_configs.secret IS 'The client''s token and credentials, encrypted like values of secrets';

COMMENT ON COLUMN public.push_configs.key_id IS 'Id of the master key that encrypts them; null without any';

CREATE TABLE public.request_parts (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    content jsonb NOT NULL,
    parts text[] COLLATE pg_catalog."C",
    used_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_request_parts__kind CHECK ((kind = ANY (ARRAY['form'::text, 'section'::text, 'tools'::text])))
);

COMMENT ON TABLE public.request_parts IS 'A part of requests: a section of a system prompt, a list of tools, or the form that names such parts.';

COMMENT ON COLUMN public.request_parts.id IS 'Hash of its kind and content';

COMMENT ON COLUMN public.request_parts.parts IS 'Of a form: the ids of its parts';

COMMENT ON COLUMN public.request_parts.used_at IS 'When a worker last wrote it; a part that is not used is kept for hours';

CREATE TABLE public.run_attempts (
    run_id text NOT NULL COLLATE pg_catalog."C",
    attempt integer NOT NULL,
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    worker_id text COLLATE pg_catalog."C",
    started_at timestamp with time zone,
    ended_at timestamp with time zone DEFAULT now() NOT NULL,
    ended text NOT NULL,
    CONSTRAINT ck_run_attempts__ended CHECK ((ended = ANY (ARRAY['waiting'::text, 'requeued'::text, 'lost'::text, 'engine_error'::text, 'held'::text, 'failed'::text])))
);

COMMENT ON TABLE public.run_attempts IS 'An attempt that ended and did not end its run. The latest attempt is in the run itself.';

CREATE TABLE public.run_lists (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    owner_id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    query jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.run_lists IS 'The filter and the order of a list of runs, which a person saved under a name.';

COMMENT ON COLUMN public.run_lists.owner_id IS 'The first of the keys that replaced each other';

COMMENT ON COLUMN public.run_lists.query IS 'contracts.http.run_lists.RunListQuery';

CREATE TABLE public.run_waits (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    tool_call_id text NOT NULL,
    kind text NOT NULL,
    request jsonb NOT NULL,
    child_run_id text COLLATE pg_catalog."C",
    status text DEFAULT 'open'::text NOT NULL,
    answer jsonb,
    due_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    resolved_at timestamp with time zone,
    CONSTRAINT ck_run_waits__kind CHECK ((kind = ANY (ARRAY['user'::text, 'approval'::text, 'agent'::text, 'timer'::text, 'message'::text, 'orchestration'::text, 'client_tool'::text]))),
    CONSTRAINT ck_run_waits__status CHECK ((status = ANY (ARRAY['open'::text, 'resolved'::text, 'timed_out'::text, 'canceled'::text])))
);
ALTER TABLE ONLY public.run_waits ALTER COLUMN status SET STATISTICS 0;

COMMENT ON TABLE public.run_waits IS 'What a run waits for, or waited for, and until when. A tool call has at most one open wait.';

COMMENT ON COLUMN public.run_waits.tool_call_id IS 'The model''s id of the call whose result this wait writes';

COMMENT ON COLUMN public.run_waits.request IS 'contracts.waits.WaitRequest';

COMMENT ON COLUMN public.run_waits.child_run_id IS 'The run whose end is the answer';

CREATE TABLE public.runs (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    agent_version integer,
    seq bigint NOT NULL,
    front boolean DEFAULT false NOT NULL,
    status text DEFAULT 'queued'::text NOT NULL,
    queue text DEFAULT 'interactive'::text NOT NULL,
    on_busy text DEFAULT 'enqueue'::text NOT NULL,
    source text DEFAULT 'api'::text NOT NULL,
    content jsonb NOT NULL,
    model text,
    max_turns integer,
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    parent_run_id text COLLATE pg_catalog."C",
    attempt integer DEFAULT 0 NOT NULL,
    losses integer DEFAULT 0 NOT NULL,
    fence bigint,
    worker_id text COLLATE pg_catalog."C",
    lease_expires_at timestamp with time zone,
    cancel_requested_at timestamp with time zone,
    cancel_reason text,
    rang_at timestamp with time zone DEFAULT now() NOT NULL,
    turn_id text COLLATE pg_catalog."C",
    merged_into text COLLATE pg_catalog."C",
    stop_reason text,
    result_text text,
    error_kind text,
    error_message text,
    error_retryable boolean,
    final_event_id text,
    traceparent text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    queued_at timestamp with time zone DEFAULT now() NOT NULL,
    started_at timestamp with time zone,
    first_token_at timestamp with time zone,
    finished_at timestamp with time zone,
    depth integer DEFAULT 0 NOT NULL,
    limit_reached text,
    output jsonb,
    trigger_id text COLLATE pg_catalog."C",
    trigger_told boolean DEFAULT false NOT NULL,
    priority integer DEFAULT 0 NOT NULL,
    start_at timestamp with time zone,
    claimed_at timestamp with time zone,
    hold text,
    hold_detail jsonb,
    held_since timestamp with time zone,
    held_until timestamp with time zone,
    refused_by text,
    options jsonb,
    has_push_configs boolean DEFAULT false NOT NULL,
    needs text[],
    code_version text,
    asked_version integer,
    CONSTRAINT ck_runs__hold CHECK ((hold = 'provider'::text)),
    CONSTRAINT ck_runs__on_busy CHECK ((on_busy = ANY (ARRAY['enqueue'::text, 'reject'::text, 'interrupt'::text, 'steer'::text, 'collect'::text]))),
    CONSTRAINT ck_runs__queue CHECK ((queue = ANY (ARRAY['interactive'::text, 'background'::text]))),
    CONSTRAINT ck_runs__running_has_lease CHECK (((status = 'running'::text) = (lease_expires_at IS NOT NULL))),
    CONSTRAINT ck_runs__source CHECK ((source = ANY (ARRAY['api'::text, 'trigger'::text, 'task'::text, 'agent'::text, 'channel'::text, 'work_order'::text]))),
    CONSTRAINT ck_runs__status CHECK ((status = ANY (ARRAY['scheduled'::text, 'queued'::text, 'running'::text, 'waiting'::text, 'succeeded'::text, 'failed'::text, 'canceled'::text, 'merged'::text]))),
    CONSTRAINT ck_runs__stop_reason CHECK ((stop_reason = ANY (ARRAY['end_turn'::text, 'max_tokens'::text, 'tool_use'::text, 'timeout'::text, 'aborted'::text, 'error'::text])))
)
WITH (fillfactor='70');
ALTER TABLE ONLY public.runs ALTER COLUMN status SET STATISTICS 0;

COMMENT ON TABLE public.runs IS 'One run. See docs/run-protocol.md for every transition.';

COMMENT ON COLUMN public.runs.agent_version IS 'The version that the claim used';

COMMENT ON COLUMN public.runs.seq IS 'Position in the thread''s queue';

COMMENT ON COLUMN public.runs.front IS 'Goes before the rest of the queue: it interrupted the active run';

COMMENT ON COLUMN public.runs.content IS 'The user''s message as content blocks';

COMMENT ON COLUMN public.runs.parent_run_id IS 'The run that started this one';

COMMENT ON COLUMN public.runs.attempt IS 'Claims so far';

COMMENT ON COLUMN public.runs.losses IS 'Expired leases: workers that crashed or hung with this run';

COMMENT ON COLUMN public.runs.fence IS 'Of the latest claim';

COMMENT ON COLUMN public.runs.cancel_reason IS 'cancel or interrupt';

COMMENT ON COLUMN public.runs.rang_at IS 'When its doorbell was last rung, as far as is recorded';

COMMENT ON COLUMN public.runs.merged_into IS 'The run whose turn absorbed this message';

COMMENT ON COLUMN public.runs.final_event_id IS '<attempt>-<seq> of its last live event';

COMMENT ON COLUMN public.runs.traceparent IS 'W3C trace context of the request';

COMMENT ON COLUMN public.runs.queued_at IS 'Latest entry into the queue';

COMMENT ON COLUMN public.runs.started_at IS 'First claim';

COMMENT ON COLUMN public.runs.depth IS 'Number of runs above it: its parent, the parent''s parent, …';

COMMENT ON COLUMN public.runs.limit_reached IS 'turns, tokens, cost or time: the bound that ended the turn';

COMMENT ON COLUMN public.runs.output IS 'With an output schema: the answer as a value that matches it';

COMMENT ON COLUMN public.runs.trigger_id IS 'The trigger that fired it';

COMMENT ON COLUMN public.runs.trigger_told IS 'Whether its trigger has recorded how it ended';

COMMENT ON COLUMN public.runs.priority IS 'Higher goes first among the runs of its tenant';

COMMENT ON COLUMN public.runs.start_at IS 'Earliest start; a scheduled run is in no queue';

COMMENT ON COLUMN public.runs.claimed_at IS 'Latest claim';

COMMENT ON COLUMN public.runs.hold IS 'Why it is queued and not to be claimed';

COMMENT ON COLUMN public.runs.hold_detail IS 'contracts.waits.HoldDetail, of the latest hold';

COMMENT ON COLUMN public.runs.held_since IS 'When the first hold since its last step began';

COMMENT ON COLUMN public.runs.held_until IS 'The next try of a held run; null: of any worker that can. Of others: a try was granted';

COMMENT ON COLUMN public.runs.refused_by IS 'ceiling, tenant, agent, trigger or orchestration: the budget that refused it, with budget_exceeded';

COMMENT ON COLUMN public.runs.options IS 'contracts.run_options.RunOptions';

COMMENT ON COLUMN public.runs.has_push_configs IS 'Whether a row of push_configs names an address for its changes';

COMMENT ON COLUMN public.runs.needs IS 'Of that version: the projects and code that it needs; null is none';

COMMENT ON COLUMN public.runs.code_version IS 'Of an agent in Python: code and digest of the worker that claimed it last';

COMMENT ON COLUMN public.runs.asked_version IS 'The version that the claim is to use';

CREATE TABLE public.secrets (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    ciphertext bytea NOT NULL,
    key_id text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    updated_by text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.secrets IS 'A named secret, encrypted with a key that is not in the database.';

COMMENT ON COLUMN public.secrets.key_id IS 'Id of the master key that encrypts it';

COMMENT ON COLUMN public.secrets.updated_by IS 'person, or the agent''s id';

CREATE TABLE public.sent_files (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    media_type text NOT NULL,
    size_bytes bigint DEFAULT 0 NOT NULL,
    caption text,
    content bytea NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.sent_files IS 'A file that an agent sent to people. In the ledger, since workers share no disk.';

CREATE TABLE public.sign_ins (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    id text NOT NULL COLLATE pg_catalog."C",
    key_id text NOT NULL COLLATE pg_catalog."C",
    idle_s integer NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL,
    began_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.sign_ins IS 'A session of a person who signed in with a key; without its row it has ended.';

COMMENT ON COLUMN public.sign_ins.key_id IS 'The key that the person signed in with';

COMMENT ON COLUMN public.sign_ins.idle_s IS 'It ends after this long without a request';

COMMENT ON COLUMN public.sign_ins.seen_at IS 'Of its last request, exact to a minute';

CREATE TABLE public.skill_files (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    skill_name text NOT NULL,
    path text NOT NULL,
    executable boolean DEFAULT false NOT NULL,
    content bytea NOT NULL
);

COMMENT ON TABLE public.skill_files IS 'A file beside a SKILL.md.';

COMMENT ON COLUMN public.skill_files.path IS 'Relative to the skill''s directory, with slashes';

CREATE TABLE public.skills (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    description text NOT NULL,
    skill_md text NOT NULL,
    body text NOT NULL,
    front_matter jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.skills IS 'A skill of the tenant''s library: instructions that an agent reads when it needs them.';

COMMENT ON COLUMN public.skills.skill_md IS 'SKILL.md, unchanged';

COMMENT ON COLUMN public.skills.body IS 'The same without its front matter';

COMMENT ON COLUMN public.skills.front_matter IS 'contracts.skills.SkillFront';

CREATE TABLE public.switches (
    scope text NOT NULL,
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    target text NOT NULL COLLATE pg_catalog."C",
    reason text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    holds_deliveries boolean DEFAULT false NOT NULL,
    CONSTRAINT ck_switches__scope CHECK ((scope = ANY (ARRAY['fleet'::text, 'tenant'::text, 'agent'::text, 'rename'::text])))
);

COMMENT ON TABLE public.switches IS 'A pause: nothing new starts within its scope while the row exists.';

COMMENT ON COLUMN public.switches.tenant_id IS 'Empty for the fleet';

COMMENT ON COLUMN public.switches.target IS 'The agent''s id; empty for fleet and tenant';

COMMENT ON COLUMN public.switches.holds_deliveries IS 'Of the fleet''s pause: nothing is sent outside either, as after a restore';

CREATE TABLE public.task_changes (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    task_id integer NOT NULL,
    revision integer NOT NULL,
    actor text NOT NULL,
    run_id text COLLATE pg_catalog."C",
    kind text NOT NULL,
    details jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.task_changes IS 'One change of a task. Never updated.';

COMMENT ON COLUMN public.task_changes.revision IS 'The task''s revision after the change';

COMMENT ON COLUMN public.task_changes.actor IS 'person, or the agent''s id';

CREATE TABLE public.task_resources (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    task_id integer NOT NULL,
    kind text NOT NULL,
    value text NOT NULL,
    title text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_task_resources__kind CHECK ((kind = ANY (ARRAY['url'::text, 'file'::text])))
);

COMMENT ON TABLE public.task_resources IS 'A URL or a file that a task works with.';

COMMENT ON COLUMN public.task_resources.value IS 'The URL, or the path';

CREATE TABLE public.task_steps (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    task_id integer NOT NULL,
    "position" integer DEFAULT 0 NOT NULL,
    title text NOT NULL,
    details text DEFAULT ''::text NOT NULL,
    done boolean DEFAULT false NOT NULL,
    subtask_id integer,
    CONSTRAINT ck_task_steps__title CHECK (((char_length(title) >= 1) AND (char_length(title) <= 60)))
);

COMMENT ON TABLE public.task_steps IS 'One step of a task''s plan.';

COMMENT ON COLUMN public.task_steps.subtask_id IS 'The task that does this step';

CREATE TABLE public.tasks (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    id integer NOT NULL,
    title text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    owner_agent_id text NOT NULL COLLATE pg_catalog."C",
    created_by text NOT NULL,
    status text DEFAULT 'draft'::text NOT NULL,
    revision integer DEFAULT 0 NOT NULL,
    thread_id text COLLATE pg_catalog."C",
    parent_task_id integer,
    parent_step_id text COLLATE pg_catalog."C",
    outcome text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    work_at timestamp with time zone,
    working_run_id text COLLATE pg_catalog."C",
    worked_revision integer,
    idle_invocations integer DEFAULT 0 NOT NULL,
    parked_reason text,
    CONSTRAINT ck_tasks__parent_is_whole CHECK (((parent_task_id IS NULL) = (parent_step_id IS NULL))),
    CONSTRAINT ck_tasks__status CHECK ((status = ANY (ARRAY['draft'::text, 'active'::text, 'done'::text, 'canceled'::text])))
);

COMMENT ON TABLE public.tasks IS 'One task. Its id is a number within its tenant, never used again.';

COMMENT ON COLUMN public.tasks.created_by IS 'person, or the agent''s id';

COMMENT ON COLUMN public.tasks.revision IS 'Counts its changes';

COMMENT ON COLUMN public.tasks.thread_id IS 'Its dedicated thread, made when it is activated';

COMMENT ON COLUMN public.tasks.outcome IS 'Its result, or why it was canceled';

COMMENT ON COLUMN public.tasks.work_at IS 'When it is worked on next; null if it is not';

COMMENT ON COLUMN public.tasks.working_run_id IS 'The invocation that is in flight';

COMMENT ON COLUMN public.tasks.worked_revision IS 'Its revision when the latest invocation began';

COMMENT ON COLUMN public.tasks.idle_invocations IS 'Consecutive invocations that changed nothing';

COMMENT ON COLUMN public.tasks.parked_reason IS 'Why the scheduler does not work on it';

CREATE TABLE public.tenants (
    id text NOT NULL COLLATE pg_catalog."C",
    name text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    next_task_id integer DEFAULT 1 NOT NULL,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    work_from integer DEFAULT 6 NOT NULL,
    work_until integer DEFAULT 22 NOT NULL,
    work_every_s integer DEFAULT 3600 NOT NULL,
    weight integer DEFAULT 1 NOT NULL,
    max_running integer,
    max_cost_usd_per_day numeric(18,8),
    ending_at timestamp with time zone,
    ceilings jsonb,
    CONSTRAINT ck_tenants__timezone_is_known CHECK ((timezone(timezone, '2000-01-01 00:00:00'::timestamp without time zone) IS NOT NULL))
);

COMMENT ON TABLE public.tenants IS 'An isolated customer of the fleet. Every other row belongs to one.';

COMMENT ON COLUMN public.tenants.next_task_id IS 'The number of the next task';

COMMENT ON COLUMN public.tenants.timezone IS 'IANA name; the zone of its days and hours';

COMMENT ON COLUMN public.tenants.work_from IS 'First hour of the day at which tasks are worked on';

COMMENT ON COLUMN public.tenants.work_until IS 'The hour at which that ends';

COMMENT ON COLUMN public.tenants.work_every_s IS 'How often a task is worked on';

COMMENT ON COLUMN public.tenants.weight IS 'Its share of a busy fleet, relative to other tenants';

COMMENT ON COLUMN public.tenants.max_running IS 'Most runs at once';

COMMENT ON COLUMN public.tenants.ending_at IS 'When an operator ended it; from then on its rows are deleted';

COMMENT ON COLUMN public.tenants.ceilings IS 'What its agents may be given at most, see contracts.agents; null permits everything';

CREATE TABLE public.thread_heads (
    id bigint NOT NULL,
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    turn_id text COLLATE pg_catalog."C",
    run_id text COLLATE pg_catalog."C",
    move text DEFAULT 'turn'::text NOT NULL,
    changed_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_thread_heads__move CHECK ((move = ANY (ARRAY['turn'::text, 'fork'::text, 'compaction'::text, 'retry'::text, 'import'::text])))
);

COMMENT ON TABLE public.thread_heads IS 'One move of a thread''s head pointer.';

ALTER TABLE public.thread_heads ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.thread_heads_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE TABLE public.thread_states (
    thread_id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    state jsonb NOT NULL,
    version bigint DEFAULT 1 NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
)
WITH (fillfactor='70');

COMMENT ON TABLE public.thread_states IS 'The state document of a thread, apart from its row: claims and messages lock and copy that.';

COMMENT ON COLUMN public.thread_states.version IS 'Grows with each change; a write with another one is refused';

CREATE TABLE public.threads (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    label text,
    title text,
    head_turn_id text COLLATE pg_catalog."C",
    active_run_id text COLLATE pg_catalog."C",
    fence bigint DEFAULT 0 NOT NULL,
    next_seq bigint DEFAULT 1 NOT NULL,
    turn_count integer DEFAULT 0 NOT NULL,
    session_id text,
    forked_from_thread_id text COLLATE pg_catalog."C",
    forked_from_turn_id text COLLATE pg_catalog."C",
    meta jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    task_id integer,
    purge_at timestamp with time zone,
    trimmed_at timestamp with time zone,
    orchestration_id text COLLATE pg_catalog."C",
    imported_at timestamp with time zone,
    ephemeral boolean DEFAULT false NOT NULL,
    origin text DEFAULT 'api'::text NOT NULL,
    created_by text COLLATE pg_catalog."C",
    pinned boolean DEFAULT false NOT NULL,
    archived boolean DEFAULT false NOT NULL,
    CONSTRAINT ck_threads__origin CHECK ((origin = ANY (ARRAY['api'::text, 'trigger'::text, 'task'::text, 'agent'::text, 'channel'::text, 'work_order'::text])))
)
WITH (fillfactor='70');

COMMENT ON TABLE public.threads IS 'One conversation owned by one agent.';

COMMENT ON COLUMN public.threads.label IS 'A name for the thread, unique until the thread is deleted';

COMMENT ON COLUMN public.threads.head_turn_id IS 'Newest finished turn; null before the first';

COMMENT ON COLUMN public.threads.active_run_id IS 'The run that holds the thread, if any';

COMMENT ON COLUMN public.threads.fence IS 'Raised at every claim; a write with an older fence is refused';

COMMENT ON COLUMN public.threads.next_seq IS 'Queue position of the next run';

COMMENT ON COLUMN public.threads.turn_count IS 'Finished normal turns';

COMMENT ON COLUMN public.threads.session_id IS 'The SDK session of engines that keep their own';

COMMENT ON COLUMN public.threads.task_id IS 'The task that the thread is dedicated to';

COMMENT ON COLUMN public.threads.purge_at IS 'When the rows of a deleted thread are purged; infinity while forks continue from its turns';

COMMENT ON COLUMN public.threads.trimmed_at IS 'When all but its latest turn was last deleted, by policy';

COMMENT ON COLUMN public.threads.orchestration_id IS 'The orchestration that one of its agents has it for';

COMMENT ON COLUMN public.threads.imported_at IS 'When its first turns were imported from elsewhere';

COMMENT ON COLUMN public.threads.ephemeral IS 'In no list or search, without a title, purged a day after its last use';

COMMENT ON COLUMN public.threads.origin IS 'What began it';

COMMENT ON COLUMN public.threads.created_by IS 'The API key whose request began it; null for other origins';

COMMENT ON COLUMN public.threads.pinned IS 'Lists for people have it first';

COMMENT ON COLUMN public.threads.archived IS 'Put away: lists for people leave it out';

CREATE TABLE public.tool_calls (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    turn_id text NOT NULL COLLATE pg_catalog."C",
    call_id text NOT NULL,
    step integer NOT NULL,
    sequence integer NOT NULL,
    tool_name text NOT NULL,
    params jsonb NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    result jsonb,
    error text,
    spawned_run_id text COLLATE pg_catalog."C",
    started_at timestamp with time zone,
    completed_at timestamp with time zone,
    CONSTRAINT ck_tool_calls__status CHECK ((status = ANY (ARRAY['pending'::text, 'running'::text, 'completed'::text, 'failed'::text, 'interrupted'::text, 'deferred'::text, 'approved'::text])))
);

COMMENT ON TABLE public.tool_calls IS 'One tool call: pending before it starts, with a result after it ended.';

COMMENT ON COLUMN public.tool_calls.call_id IS 'The model''s id of the call';

CREATE TABLE public.trigger_firings (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    trigger_id text NOT NULL COLLATE pg_catalog."C",
    scheduled_for timestamp with time zone NOT NULL,
    fired_at timestamp with time zone DEFAULT now() NOT NULL,
    run_id text COLLATE pg_catalog."C",
    outcome text NOT NULL,
    skip_reason text,
    detail text,
    manual boolean DEFAULT false NOT NULL,
    CONSTRAINT ck_trigger_firings__outcome CHECK ((outcome = ANY (ARRAY['fired'::text, 'queued'::text, 'skipped'::text])))
);

COMMENT ON TABLE public.trigger_firings IS 'The outcome of one occurrence of a trigger. Its unique index makes an occurrence fire once.';

COMMENT ON COLUMN public.trigger_firings.scheduled_for IS 'The planned time';

COMMENT ON COLUMN public.trigger_firings.detail IS 'The reason in words';

COMMENT ON COLUMN public.trigger_firings.manual IS 'Fired on request, not by the schedule';

CREATE TABLE public.triggers (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    agent_id text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    schedule text NOT NULL,
    timezone text DEFAULT 'UTC'::text NOT NULL,
    prompt text NOT NULL,
    title text,
    enabled boolean DEFAULT true NOT NULL,
    thread_id text COLLATE pg_catalog."C",
    starts_at timestamp with time zone,
    ends_at timestamp with time zone,
    created_by text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL,
    deleted_at timestamp with time zone,
    jitter_s integer DEFAULT 0 NOT NULL,
    overlap text DEFAULT 'skip'::text NOT NULL,
    catchup_s integer DEFAULT 3600 NOT NULL,
    catchup text DEFAULT 'once'::text NOT NULL,
    max_runs_per_day integer,
    max_cost_usd_per_day numeric(18,8),
    pause_after_failures integer DEFAULT 5 NOT NULL,
    failures integer DEFAULT 0 NOT NULL,
    paused_reason text,
    gate jsonb,
    gate_seen text,
    next_slot_at timestamp with time zone,
    next_fire_at timestamp with time zone,
    action text DEFAULT 'run'::text NOT NULL,
    CONSTRAINT ck_triggers__action CHECK ((action = ANY (ARRAY['run'::text, 'orchestrate'::text]))),
    CONSTRAINT ck_triggers__catchup CHECK ((catchup = ANY (ARRAY['once'::text, 'each'::text]))),
    CONSTRAINT ck_triggers__kind CHECK ((kind = ANY (ARRAY['cron'::text, 'at'::text, 'every'::text]))),
    CONSTRAINT ck_triggers__overlap CHECK ((overlap = ANY (ARRAY['skip'::text, 'queue'::text, 'cancel_other'::text])))
)
WITH (fillfactor='70');

COMMENT ON TABLE public.triggers IS 'A schedule by which an agent is started with a prompt.';

COMMENT ON COLUMN public.triggers.schedule IS 'A cron line, a time in RFC 3339, or a period in seconds';

COMMENT ON COLUMN public.triggers.timezone IS 'IANA name; the zone of a cron line';

COMMENT ON COLUMN public.triggers.thread_id IS 'One fixed thread; null makes one for each firing';

COMMENT ON COLUMN public.triggers.created_by IS 'person, or the agent''s id';

COMMENT ON COLUMN public.triggers.jitter_s IS 'Each occurrence fires up to this many seconds later, at random';

COMMENT ON COLUMN public.triggers.catchup_s IS 'How late an occurrence may fire, in seconds; later it is skipped';

COMMENT ON COLUMN public.triggers.pause_after_failures IS 'Consecutive failed runs after which it pauses; 0 is never';

COMMENT ON COLUMN public.triggers.failures IS 'Consecutive failed runs';

COMMENT ON COLUMN public.triggers.paused_reason IS 'Why it does not fire though it is enabled';

COMMENT ON COLUMN public.triggers.gate IS 'A condition that costs no model call';

COMMENT ON COLUMN public.triggers.gate_seen IS 'What the gate read at the latest firing';

COMMENT ON COLUMN public.triggers.next_slot_at IS 'The next occurrence by its schedule';

COMMENT ON COLUMN public.triggers.next_fire_at IS 'The same with its jitter; null if it does not fire';

COMMENT ON COLUMN public.triggers.action IS 'What it starts; the prompt is the message of a run, or the task';

CREATE TABLE public.turns (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    thread_id text NOT NULL COLLATE pg_catalog."C",
    run_id text COLLATE pg_catalog."C",
    parent_turn_id text COLLATE pg_catalog."C",
    depth integer DEFAULT 0 NOT NULL,
    type text DEFAULT 'normal'::text NOT NULL,
    status text DEFAULT 'running'::text NOT NULL,
    agent_id text NOT NULL COLLATE pg_catalog."C",
    agent_version integer,
    engine text,
    model text,
    provider text,
    role text,
    toolset_name text,
    tools_available jsonb,
    permissions_granted jsonb,
    permissions_used jsonb,
    source_event_id text,
    workspace_path text,
    steps integer DEFAULT 0 NOT NULL,
    context_tokens bigint,
    tool_call_count integer DEFAULT 0 NOT NULL,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    cache_read_tokens bigint DEFAULT 0 NOT NULL,
    cache_write_tokens bigint DEFAULT 0 NOT NULL,
    reasoning_tokens bigint DEFAULT 0 NOT NULL,
    cost_usd numeric(18,8),
    stop_reason text,
    error_kind text,
    error_message text,
    started_at timestamp with time zone DEFAULT now() NOT NULL,
    completed_at timestamp with time zone,
    refused_blocks jsonb,
    reserved_usd numeric(18,8),
    reserved_tokens bigint,
    reserved_fence bigint,
    open_usd numeric(18,8),
    open_tokens bigint,
    CONSTRAINT ck_turns__status CHECK ((status = ANY (ARRAY['running'::text, 'waiting'::text, 'succeeded'::text, 'failed'::text, 'aborted'::text]))),
    CONSTRAINT ck_turns__stop_reason CHECK ((stop_reason = ANY (ARRAY['end_turn'::text, 'max_tokens'::text, 'tool_use'::text, 'timeout'::text, 'aborted'::text, 'error'::text]))),
    CONSTRAINT ck_turns__type CHECK ((type = ANY (ARRAY['normal'::text, 'compaction'::text])))
)
WITH (fillfactor='80');

COMMENT ON TABLE public.turns IS 'One executed run, child of the turn before it. Immutable once it is not running or waiting.';

COMMENT ON COLUMN public.turns.run_id IS 'Null for a compaction and for an imported turn';

COMMENT ON COLUMN public.turns.parent_turn_id IS 'In another thread where this thread was forked';

COMMENT ON COLUMN public.turns.depth IS 'Distance from the root';

COMMENT ON COLUMN public.turns.role IS 'manager, worker or unified';

COMMENT ON COLUMN public.turns.steps IS 'Committed steps';

COMMENT ON COLUMN public.turns.context_tokens IS 'Of the last model call: the conversation''s size';

COMMENT ON COLUMN public.turns.cost_usd IS 'Null where the price of the model is not known';

COMMENT ON COLUMN public.turns.refused_blocks IS 'Notes that replace refused blocks, by fingerprint';

COMMENT ON COLUMN public.turns.reserved_usd IS 'For open model calls, and what was used since the last commit';

COMMENT ON COLUMN public.turns.reserved_fence IS 'Of the claim that reserved; else it is void';

COMMENT ON COLUMN public.turns.open_usd IS 'Of reserved_usd: for open model calls; void without it';

CREATE TABLE public.upkeep_cursors (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    work text NOT NULL,
    target text NOT NULL COLLATE pg_catalog."C",
    variant text DEFAULT ''::text NOT NULL,
    passed_at timestamp with time zone,
    passed_id text COLLATE pg_catalog."C",
    behind boolean DEFAULT true NOT NULL,
    due_at timestamp with time zone DEFAULT now() NOT NULL,
    worked_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.upkeep_cursors IS 'Progress of a background pass over a tenant''s rows. A worker leases it by moving its due time.';

COMMENT ON COLUMN public.upkeep_cursors.work IS 'backfill, imports or threads';

COMMENT ON COLUMN public.upkeep_cursors.target IS 'The agent whose threads; the imported thread; empty for the backfill';

COMMENT ON COLUMN public.upkeep_cursors.variant IS 'The embedding model that the pass uses';

COMMENT ON COLUMN public.upkeep_cursors.passed_at IS 'All rows up to here are done; null is from the beginning';

COMMENT ON COLUMN public.upkeep_cursors.passed_id IS 'The last of them';

COMMENT ON COLUMN public.upkeep_cursors.behind IS 'Whether there is more to do now';

COMMENT ON COLUMN public.upkeep_cursors.due_at IS 'When it is worked on next; while a worker does, the end of its lease';

COMMENT ON COLUMN public.upkeep_cursors.worked_at IS 'When a worker last took it';

CREATE TABLE public.usage (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    run_id text COLLATE pg_catalog."C",
    turn_id text COLLATE pg_catalog."C",
    thread_id text COLLATE pg_catalog."C",
    agent_id text COLLATE pg_catalog."C",
    model text,
    provider text,
    input_tokens bigint DEFAULT 0 NOT NULL,
    output_tokens bigint DEFAULT 0 NOT NULL,
    cache_read_tokens bigint DEFAULT 0 NOT NULL,
    cache_write_tokens bigint DEFAULT 0 NOT NULL,
    reasoning_tokens bigint DEFAULT 0 NOT NULL,
    cost_usd numeric(18,8),
    model_calls integer DEFAULT 0 NOT NULL,
    duration_ms bigint DEFAULT 0 NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.usage IS 'Tokens and cost: one row per run, written when it ends, one per compaction, and one per judgement of models.';

COMMENT ON COLUMN public.usage.run_id IS 'Null for a compaction and for a judgement';

COMMENT ON COLUMN public.usage.turn_id IS 'Null for a judgement of models, which belongs to no run';

COMMENT ON COLUMN public.usage.thread_id IS 'Null for a judgement';

COMMENT ON COLUMN public.usage.agent_id IS 'Null for a judgement';

CREATE TABLE public.webhooks (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    url text NOT NULL,
    description text DEFAULT ''::text NOT NULL,
    kinds text[] DEFAULT '{}'::text[] NOT NULL,
    agent_id text COLLATE pg_catalog."C",
    enabled boolean DEFAULT true NOT NULL,
    disabled_reason text,
    failures integer DEFAULT 0 NOT NULL,
    failing_since timestamp with time zone,
    rests_until timestamp with time zone,
    secret bytea NOT NULL,
    key_id text NOT NULL,
    previous_secret bytea,
    previous_expires_at timestamp with time zone,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    updated_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.webhooks IS 'A URL that receives events, signed as Standard Webhooks.';

COMMENT ON COLUMN public.webhooks.kinds IS 'Kinds of delivery that it receives; empty is all but audit_recorded';

COMMENT ON COLUMN public.webhooks.agent_id IS 'Receives only this agent''s deliveries; null is every agent''s';

COMMENT ON COLUMN public.webhooks.failures IS 'Consecutive failed attempts';

COMMENT ON COLUMN public.webhooks.failing_since IS 'Time of the first of them';

COMMENT ON COLUMN public.webhooks.rests_until IS 'No attempt is made before this time';

COMMENT ON COLUMN public.webhooks.secret IS 'Encrypted like the values of secrets';

COMMENT ON COLUMN public.webhooks.key_id IS 'Id of the master key that encrypts it';

COMMENT ON COLUMN public.webhooks.previous_secret IS 'Also signs, until it expires';

CREATE TABLE public.work_order_keys (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    key_hash text NOT NULL,
    policy_version text NOT NULL,
    schema_version text NOT NULL,
    order_id text NOT NULL COLLATE pg_catalog."C",
    expires_at timestamp with time zone NOT NULL
);

COMMENT ON TABLE public.work_order_keys IS 'Which order equal orders share: the live one of a key hash. Another version of policy or schema has another.';

COMMENT ON COLUMN public.work_order_keys.expires_at IS 'Infinity while the order is open';

CREATE TABLE public.work_order_parts (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    order_id text NOT NULL COLLATE pg_catalog."C",
    run_id text NOT NULL COLLATE pg_catalog."C",
    kind text NOT NULL,
    role text NOT NULL,
    round integer NOT NULL,
    "position" integer NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    calls integer DEFAULT 0 NOT NULL,
    reserved_tokens bigint DEFAULT 0 NOT NULL,
    reserved_usd numeric(18,8) NOT NULL,
    used_tokens bigint DEFAULT 0 NOT NULL,
    used_usd numeric(18,8) NOT NULL,
    usage jsonb DEFAULT '{}'::jsonb NOT NULL,
    engine text,
    model text,
    provider text,
    sealed_output bytea,
    fingerprint text,
    confidence double precision,
    approved boolean,
    stop_reason text,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    lost_tokens bigint DEFAULT 0 NOT NULL,
    lost_usd numeric(18,8) DEFAULT 0 NOT NULL,
    CONSTRAINT ck_work_order_parts__kind CHECK ((kind = ANY (ARRAY['craft'::text, 'review'::text, 'general'::text]))),
    CONSTRAINT ck_work_order_parts__stop_reason CHECK ((stop_reason = ANY (ARRAY['ok'::text, 'needs_human'::text, 'in_progress'::text, 'provider_failed'::text, 'router_failed'::text, 'ajv_failed'::text, 'json_parse_failed'::text, 'rate_limited'::text, 'cost_cap_exceeded'::text, 'round_cap_exceeded'::text, 'invalid_request'::text])))
);

COMMENT ON TABLE public.work_order_parts IS 'One model job of an order: one role, in one round. It is executed by one run.';

COMMENT ON COLUMN public.work_order_parts.role IS 'Its name in the policy';

COMMENT ON COLUMN public.work_order_parts."position" IS 'Within kind and round, from 0';

COMMENT ON COLUMN public.work_order_parts.attempts IS 'Grows when a worker begins it; fences writes of earlier attempts';

COMMENT ON COLUMN public.work_order_parts.calls IS 'Model calls, without those that are lost';

COMMENT ON COLUMN public.work_order_parts.reserved_tokens IS 'Of the call in progress, at worst';

COMMENT ON COLUMN public.work_order_parts.usage IS 'contracts.usage.TokenUsage';

COMMENT ON COLUMN public.work_order_parts.sealed_output IS 'Its answer, encrypted; null after the order''s end';

COMMENT ON COLUMN public.work_order_parts.fingerprint IS 'HMAC of its answer, or of the provider''s error';

COMMENT ON COLUMN public.work_order_parts.stop_reason IS 'Null while it is open';

COMMENT ON COLUMN public.work_order_parts.lost_tokens IS 'At worst, of calls whose worker crashed; they count for the caps of the order';

CREATE TABLE public.work_order_policies (
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    policy_id text NOT NULL,
    number integer NOT NULL,
    version text NOT NULL,
    document jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.work_order_policies IS 'One version of a tenant''s policy of work orders. Immutable; the one with the greatest number applies.';

COMMENT ON COLUMN public.work_order_policies.version IS 'The document''s own name of it';

CREATE TABLE public.work_order_secrets (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    ciphertext bytea NOT NULL,
    key_id text NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    expires_at timestamp with time zone
);

COMMENT ON TABLE public.work_order_secrets IS 'A tenant''s secret of the keys of work orders, encrypted with a key that is not in the database.';

COMMENT ON COLUMN public.work_order_secrets.key_id IS 'Id of the master key that encrypts it';

COMMENT ON COLUMN public.work_order_secrets.expires_at IS 'End of its use, since a newer one replaces it';

CREATE TABLE public.work_order_trail (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    order_id text NOT NULL COLLATE pg_catalog."C",
    audience text NOT NULL,
    event text NOT NULL,
    data jsonb DEFAULT '{}'::jsonb NOT NULL,
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    CONSTRAINT ck_work_order_trail__audience CHECK ((audience = ANY (ARRAY['customer'::text, 'internal'::text])))
);

COMMENT ON TABLE public.work_order_trail IS 'What happened to an order. Append-only; no content of orders, prompts or answers.';

CREATE TABLE public.work_orders (
    id text NOT NULL COLLATE pg_catalog."C",
    tenant_id text NOT NULL COLLATE pg_catalog."C",
    scope text NOT NULL,
    policy_id text NOT NULL,
    policy_version text NOT NULL,
    schema_version text NOT NULL,
    trace jsonb NOT NULL,
    presentation_mode text,
    customer_trail boolean DEFAULT false NOT NULL,
    internal_trail boolean DEFAULT false NOT NULL,
    traceparent text,
    fingerprint text NOT NULL,
    state text DEFAULT 'running'::text NOT NULL,
    stage text DEFAULT 'craft'::text NOT NULL,
    round integer DEFAULT 1 NOT NULL,
    max_rounds integer NOT NULL,
    max_tokens bigint NOT NULL,
    max_cost_usd numeric(18,8) NOT NULL,
    least_output_tokens integer NOT NULL,
    ttl_hours double precision NOT NULL,
    deadline_at timestamp with time zone NOT NULL,
    data_key bytea,
    data_key_id text,
    sealed bytea,
    sealed_draft bytea,
    stop_reason text,
    needs_human boolean DEFAULT false NOT NULL,
    outcome jsonb,
    review_due_at timestamp with time zone,
    reviewed text,
    reviewed_by text COLLATE pg_catalog."C",
    created_at timestamp with time zone DEFAULT now() NOT NULL,
    ended_at timestamp with time zone,
    CONSTRAINT ck_work_orders__stage CHECK ((stage = ANY (ARRAY['craft'::text, 'review'::text, 'general'::text]))),
    CONSTRAINT ck_work_orders__state CHECK ((state = ANY (ARRAY['running'::text, 'review'::text, 'ended'::text]))),
    CONSTRAINT ck_work_orders__stop_reason CHECK ((stop_reason = ANY (ARRAY['ok'::text, 'needs_human'::text, 'in_progress'::text, 'provider_failed'::text, 'router_failed'::text, 'ajv_failed'::text, 'json_parse_failed'::text, 'rate_limited'::text, 'cost_cap_exceeded'::text, 'round_cap_exceeded'::text, 'invalid_request'::text])))
);
ALTER TABLE ONLY public.work_orders ALTER COLUMN state SET STATISTICS 0;

COMMENT ON TABLE public.work_orders IS 'A work order. Its content exists only encrypted, under a key that is destroyed when the order ends.';

COMMENT ON COLUMN public.work_orders.schema_version IS 'Of the kind of artifact';

COMMENT ON COLUMN public.work_orders.trace IS 'contracts.orders.EngineTrace, as the caller gave it';

COMMENT ON COLUMN public.work_orders.customer_trail IS 'Whether the customer trail is recorded';

COMMENT ON COLUMN public.work_orders.internal_trail IS 'Whether the internal trail is recorded';

COMMENT ON COLUMN public.work_orders.fingerprint IS 'HMAC of the content under its key, which the end destroys';

COMMENT ON COLUMN public.work_orders.round IS 'The present round (swirl), from 1';

COMMENT ON COLUMN public.work_orders.least_output_tokens IS 'A call that could afford less is not made';

COMMENT ON COLUMN public.work_orders.ttl_hours IS 'How long an equal order gets the same result';

COMMENT ON COLUMN public.work_orders.data_key IS 'Key of the sealed columns, encrypted with a master key; null after the end';

COMMENT ON COLUMN public.work_orders.data_key_id IS 'Which master key';

COMMENT ON COLUMN public.work_orders.sealed IS 'Order and policy, encrypted; null after the end';

COMMENT ON COLUMN public.work_orders.sealed_draft IS 'The outcome that a person reviews, encrypted; null after the end';

COMMENT ON COLUMN public.work_orders.stop_reason IS 'Why it ended, before the mapping for customers';

COMMENT ON COLUMN public.work_orders.outcome IS 'orders.outcome.Outcome: customer-safe artifacts, figures';

COMMENT ON COLUMN public.work_orders.reviewed IS 'How a person decided: approve, edit, reject or expired';

COMMENT ON COLUMN public.work_orders.reviewed_by IS 'The key of that person';

CREATE TABLE public.worker_installs (
    worker_id text NOT NULL COLLATE pg_catalog."C",
    pool text NOT NULL,
    key text NOT NULL,
    provides text[] NOT NULL,
    versions text[] NOT NULL,
    codes jsonb NOT NULL,
    seen_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.worker_installs IS 'The code of users that a live worker has; the worker renews the row.';

COMMENT ON COLUMN public.worker_installs.pool IS 'Empty for the common workers';

COMMENT ON COLUMN public.worker_installs.key IS 'Equal for workers that have the same; part of the name of their queue';

COMMENT ON COLUMN public.worker_installs.provides IS 'What runs may need, as agents.needs has it';

COMMENT ON COLUMN public.worker_installs.versions IS 'As runs.code_version has them';

COMMENT ON COLUMN public.worker_installs.codes IS 'contracts.installs.InstalledCode, for people';

CREATE TABLE public.worker_sessions (
    worker_id text NOT NULL COLLATE pg_catalog."C",
    began_at timestamp with time zone DEFAULT now() NOT NULL
);

COMMENT ON TABLE public.worker_sessions IS 'A worker that holds its lock in a session of its own: without one it has ended.';

ALTER TABLE ONLY public.alembic_version
    ADD CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num);

ALTER TABLE ONLY public.agent_versions
    ADD CONSTRAINT pk_agent_versions PRIMARY KEY (tenant_id, agent_id, version);

ALTER TABLE ONLY public.agents
    ADD CONSTRAINT pk_agents PRIMARY KEY (tenant_id, id);

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT pk_api_keys PRIMARY KEY (id);

ALTER TABLE ONLY public.audit_chains
    ADD CONSTRAINT pk_audit_chains PRIMARY KEY (tenant_id);

ALTER TABLE ONLY public.audit_events
    ADD CONSTRAINT pk_audit_events PRIMARY KEY (id);

ALTER TABLE ONLY public.changes
    ADD CONSTRAINT pk_changes PRIMARY KEY (tenant_id, xact, id);

ALTER TABLE ONLY public.channel_pairings
    ADD CONSTRAINT pk_channel_pairings PRIMARY KEY (id);

ALTER TABLE ONLY public.compactions
    ADD CONSTRAINT pk_compactions PRIMARY KEY (turn_id);

ALTER TABLE ONLY public.deliveries
    ADD CONSTRAINT pk_deliveries PRIMARY KEY (id);

ALTER TABLE ONLY public.effects
    ADD CONSTRAINT pk_effects PRIMARY KEY (id);

ALTER TABLE ONLY public.embeddings
    ADD CONSTRAINT pk_embeddings PRIMARY KEY (id);

ALTER TABLE ONLY public.engine_sessions
    ADD CONSTRAINT pk_engine_sessions PRIMARY KEY (id);

ALTER TABLE ONLY public.feedback
    ADD CONSTRAINT pk_feedback PRIMARY KEY (id);

ALTER TABLE ONLY public.idempotency_keys
    ADD CONSTRAINT pk_idempotency_keys PRIMARY KEY (tenant_id, key);

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT pk_leases PRIMARY KEY (tenant_id, name);

ALTER TABLE ONLY public.memories
    ADD CONSTRAINT pk_memories PRIMARY KEY (id);

ALTER TABLE ONLY public.message_texts
    ADD CONSTRAINT pk_message_texts PRIMARY KEY (message_id);

ALTER TABLE ONLY public.messages
    ADD CONSTRAINT pk_messages PRIMARY KEY (id);

ALTER TABLE ONLY public.model_calls
    ADD CONSTRAINT pk_model_calls PRIMARY KEY (turn_id, step);

ALTER TABLE ONLY public.model_judgements
    ADD CONSTRAINT pk_model_judgements PRIMARY KEY (tenant_id);

ALTER TABLE ONLY public.model_rankings
    ADD CONSTRAINT pk_model_rankings PRIMARY KEY (tenant_id, category, model);

ALTER TABLE ONLY public.notes
    ADD CONSTRAINT pk_notes PRIMARY KEY (id);

ALTER TABLE ONLY public.orchestration_agents
    ADD CONSTRAINT pk_orchestration_agents PRIMARY KEY (id);

ALTER TABLE ONLY public.orchestration_configs
    ADD CONSTRAINT pk_orchestration_configs PRIMARY KEY (tenant_id, version);

ALTER TABLE ONLY public.orchestration_messages
    ADD CONSTRAINT pk_orchestration_messages PRIMARY KEY (id);

ALTER TABLE ONLY public.orchestrations
    ADD CONSTRAINT pk_orchestrations PRIMARY KEY (id);

ALTER TABLE ONLY public.people
    ADD CONSTRAINT pk_people PRIMARY KEY (id);

ALTER TABLE ONLY public.project_items
    ADD CONSTRAINT pk_project_items PRIMARY KEY (tenant_id, project, kind, name);

ALTER TABLE ONLY public.push_configs
    ADD CONSTRAINT pk_push_configs PRIMARY KEY (run_id, name);

ALTER TABLE ONLY public.request_parts
    ADD CONSTRAINT pk_request_parts PRIMARY KEY (tenant_id, id);

ALTER TABLE ONLY public.run_attempts
    ADD CONSTRAINT pk_run_attempts PRIMARY KEY (run_id, attempt);

ALTER TABLE ONLY public.run_lists
    ADD CONSTRAINT pk_run_lists PRIMARY KEY (id);

ALTER TABLE ONLY public.run_waits
    ADD CONSTRAINT pk_run_waits PRIMARY KEY (id);

ALTER TABLE ONLY public.runs
    ADD CONSTRAINT pk_runs PRIMARY KEY (id);

ALTER TABLE ONLY public.secrets
    ADD CONSTRAINT pk_secrets PRIMARY KEY (tenant_id, name);

ALTER TABLE ONLY public.sent_files
    ADD CONSTRAINT pk_sent_files PRIMARY KEY (id);

ALTER TABLE ONLY public.sign_ins
    ADD CONSTRAINT pk_sign_ins PRIMARY KEY (tenant_id, id);

ALTER TABLE ONLY public.skill_files
    ADD CONSTRAINT pk_skill_files PRIMARY KEY (tenant_id, skill_name, path);

ALTER TABLE ONLY public.skills
    ADD CONSTRAINT pk_skills PRIMARY KEY (tenant_id, name);

ALTER TABLE ONLY public.switches
    ADD CONSTRAINT pk_switches PRIMARY KEY (scope, tenant_id, target);

ALTER TABLE ONLY public.task_changes
    ADD CONSTRAINT pk_task_changes PRIMARY KEY (id);

ALTER TABLE ONLY public.task_resources
    ADD CONSTRAINT pk_task_resources PRIMARY KEY (id);

ALTER TABLE ONLY public.task_steps
    ADD CONSTRAINT pk_task_steps PRIMARY KEY (id);

ALTER TABLE ONLY public.tasks
    ADD CONSTRAINT pk_tasks PRIMARY KEY (tenant_id, id);

ALTER TABLE ONLY public.tenants
    ADD CONSTRAINT pk_tenants PRIMARY KEY (id);

ALTER TABLE ONLY public.thread_heads
    ADD CONSTRAINT pk_thread_heads PRIMARY KEY (id);

ALTER TABLE ONLY public.thread_states
    ADD CONSTRAINT pk_thread_states PRIMARY KEY (thread_id);

ALTER TABLE ONLY public.threads
    ADD CONSTRAINT pk_threads PRIMARY KEY (id);

ALTER TABLE ONLY public.tool_calls
    ADD CONSTRAINT pk_tool_calls PRIMARY KEY (id);

ALTER TABLE ONLY public.trigger_firings
    ADD CONSTRAINT pk_trigger_firings PRIMARY KEY (id);

ALTER TABLE ONLY public.triggers
    ADD CONSTRAINT pk_triggers PRIMARY KEY (id);

ALTER TABLE ONLY public.turns
    ADD CONSTRAINT pk_turns PRIMARY KEY (id);

ALTER TABLE ONLY public.upkeep_cursors
    ADD CONSTRAINT pk_upkeep_cursors PRIMARY KEY (tenant_id, work, target);

ALTER TABLE ONLY public.usage
    ADD CONSTRAINT pk_usage PRIMARY KEY (id);

ALTER TABLE ONLY public.webhooks
    ADD CONSTRAINT pk_webhooks PRIMARY KEY (id);

ALTER TABLE ONLY public.work_order_keys
    ADD CONSTRAINT pk_work_order_keys PRIMARY KEY (tenant_id, key_hash, policy_version, schema_version);

ALTER TABLE ONLY public.work_order_parts
    ADD CONSTRAINT pk_work_order_parts PRIMARY KEY (id);

ALTER TABLE ONLY public.work_order_policies
    ADD CONSTRAINT pk_work_order_policies PRIMARY KEY (tenant_id, policy_id, number);

ALTER TABLE ONLY public.work_order_secrets
    ADD CONSTRAINT pk_work_order_secrets PRIMARY KEY (id);

ALTER TABLE ONLY public.work_order_trail
    ADD CONSTRAINT pk_work_order_trail PRIMARY KEY (id);

ALTER TABLE ONLY public.work_orders
    ADD CONSTRAINT pk_work_orders PRIMARY KEY (id);

ALTER TABLE ONLY public.worker_installs
    ADD CONSTRAINT pk_worker_installs PRIMARY KEY (worker_id);

ALTER TABLE ONLY public.worker_sessions
    ADD CONSTRAINT pk_worker_sessions PRIMARY KEY (worker_id);

ALTER TABLE ONLY public.project_items
    ADD CONSTRAINT uq_project_items__tenant_id_kind_resource_id UNIQUE (tenant_id, kind, resource_id);

ALTER TABLE ONLY public.work_order_policies
    ADD CONSTRAINT uq_work_order_policies__tenant_id_policy_id_version UNIQUE (tenant_id, policy_id, version);

CREATE INDEX ix_agents__retention ON public.agents USING btree (tenant_id, id) WHERE (jsonb_typeof((spec -> 'retention'::text)) = 'object'::text);

CREATE UNIQUE INDEX ix_api_keys__hash ON public.api_keys USING btree (hash);

CREATE INDEX ix_api_keys__tenant_id_id ON public.api_keys USING btree (tenant_id, id);

CREATE INDEX ix_audit_events__actor ON public.audit_events USING btree (tenant_id, actor_id, id);

CREATE INDEX ix_audit_events__at ON public.audit_events USING btree (at);

CREATE INDEX ix_audit_events__chain ON public.audit_events USING btree (tenant_id, seq);

CREATE INDEX ix_audit_events__target ON public.audit_events USING btree (tenant_id, target_kind, target_id, id);

CREATE INDEX ix_audit_events__tenant_id_id ON public.audit_events USING btree (tenant_id, id);

CREATE INDEX ix_audit_events__unsealed ON public.audit_events USING btree (id) WHERE (seq IS NULL);

CREATE UNIQUE INDEX ix_channel_pairings__tenant_id_channel_sender ON public.channel_pairings USING btree (tenant_id, channel, sender);

CREATE INDEX ix_channel_pairings__tenant_id_id ON public.channel_pairings USING btree (tenant_id, id);

CREATE INDEX ix_deliveries__due ON public.deliveries USING btree (target, due_at) WHERE (status = 'pending'::text);

CREATE INDEX ix_deliveries__inbox ON public.deliveries USING btree (created_at) WHERE (target = 'user'::text);

CREATE INDEX ix_deliveries__over ON public.deliveries USING btree (created_at) WHERE ((target <> 'user'::text) AND (status = ANY (ARRAY['delivered'::text, 'failed'::text, 'closed'::text])));

CREATE INDEX ix_deliveries__run_id ON public.deliveries USING btree (run_id);

CREATE INDEX ix_deliveries__tenant_id_agent_id_id ON public.deliveries USING btree (tenant_id, agent_id, id);

CREATE INDEX ix_deliveries__tenant_id_target_id ON public.deliveries USING btree (tenant_id, target, id);

CREATE INDEX ix_deliveries__unrouted ON public.deliveries USING btree (id) WHERE ((target = 'user'::text) AND (NOT routed));

CREATE INDEX ix_effects__due_of_kind ON public.effects USING btree (kind, due_at) WHERE (status = ANY (ARRAY['pending'::text, 'running'::text]));

CREATE INDEX ix_effects__over ON public.effects USING btree (status, done_at) WHERE (done_at IS NOT NULL);

CREATE INDEX ix_embeddings__hnsw_half_384 ON public.embeddings USING hnsw (((public.l2_normalize(embedding))::public.halfvec(384)) public.halfvec_cosine_ops) WHERE (dimensions = 384);

CREATE INDEX ix_embeddings__tenant_id_agent_id ON public.embeddings USING btree (tenant_id, agent_id);

CREATE INDEX ix_embeddings__thread_id ON public.embeddings USING btree (thread_id);

CREATE INDEX ix_engine_sessions__thread_id ON public.engine_sessions USING btree (thread_id);

CREATE INDEX ix_feedback__tenant_id_agent_id_id ON public.feedback USING btree (tenant_id, agent_id, id);

CREATE INDEX ix_feedback__tenant_id_id ON public.feedback USING btree (tenant_id, id);

CREATE INDEX ix_idempotency_keys__expires_at ON public.idempotency_keys USING btree (expires_at);

CREATE INDEX ix_memories__tenant_id_id ON public.memories USING btree (tenant_id, id);

CREATE INDEX ix_message_texts__parts ON public.message_texts USING gin (public.message_parts(tenant_id, agent_id, content)) WITH (fastupdate=off);

CREATE INDEX ix_message_texts__tenant_id_agent_id ON public.message_texts USING btree (tenant_id, agent_id);

CREATE INDEX ix_message_texts__thread_id ON public.message_texts USING btree (thread_id);

CREATE INDEX ix_message_texts__words ON public.message_texts USING gin (words) WITH (fastupdate=off);

CREATE INDEX ix_messages__thread_id ON public.messages USING btree (thread_id);

CREATE INDEX ix_model_calls__tenant_id_form_id ON public.model_calls USING btree (tenant_id, form_id);

CREATE INDEX ix_notes__tenant_id_agent_id_id ON public.notes USING btree (tenant_id, agent_id, id);

CREATE INDEX ix_notes__tenant_id_id ON public.notes USING btree (tenant_id, id);

CREATE INDEX ix_orchestration_agents__active ON public.orchestration_agents USING btree (orchestration_id) WHERE (state <> ALL (ARRAY['COMPLETED'::text, 'FAILED'::text, 'KILLED'::text]));

CREATE INDEX ix_orchestration_agents__ended_at ON public.orchestration_agents USING btree (ended_at) WHERE (ended_at IS NOT NULL);

CREATE INDEX ix_orchestration_agents__orchestration_id_id ON public.orchestration_agents USING btree (orchestration_id, id);

CREATE INDEX ix_orchestration_messages__orchestration_id_id ON public.orchestration_messages USING btree (orchestration_id, id);

CREATE INDEX ix_orchestration_messages__pending ON public.orchestration_messages USING btree (target_id, id) WHERE (delivered_at IS NULL);

CREATE INDEX ix_orchestrations__open ON public.orchestrations USING btree (id) WHERE (finished_at IS NULL);

CREATE INDEX ix_orchestrations__tenant_id_id ON public.orchestrations USING btree (tenant_id, id);

CREATE INDEX ix_orchestrations__thread_id ON public.orchestrations USING btree (thread_id);

CREATE UNIQUE INDEX ix_people__tenant_id_issuer_subject ON public.people USING btree (tenant_id, issuer, subject);

CREATE INDEX ix_request_parts__parts ON public.request_parts USING gin (parts) WHERE (parts IS NOT NULL);

CREATE UNIQUE INDEX ix_run_lists__tenant_id_owner_id_name ON public.run_lists USING btree (tenant_id, owner_id, name);

CREATE INDEX ix_run_waits__asks ON public.run_waits USING btree (tenant_id, id) WHERE ((status = 'open'::text) AND (kind = ANY (ARRAY['user'::text, 'approval'::text])));

CREATE INDEX ix_run_waits__child ON public.run_waits USING btree (child_run_id) WHERE (status = 'open'::text);

CREATE INDEX ix_run_waits__due ON public.run_waits USING btree (due_at) WHERE (status = 'open'::text);

CREATE INDEX ix_run_waits__run_id ON public.run_waits USING btree (run_id);

CREATE INDEX ix_run_waits__tenant_open ON public.run_waits USING btree (tenant_id, id) WHERE (status = 'open'::text);

CREATE INDEX ix_runs__ended ON public.runs USING btree (tenant_id, finished_at) INCLUDE (status, agent_id, created_at, start_at, started_at) WHERE (finished_at IS NOT NULL);

CREATE INDEX ix_runs__ended_of_agent ON public.runs USING btree (tenant_id, agent_id, status, finished_at, id) WHERE (finished_at IS NOT NULL);

CREATE INDEX ix_runs__fair ON public.runs USING btree (queue, tenant_id, agent_id, priority DESC, queued_at) WHERE (status = 'queued'::text);

CREATE INDEX ix_runs__finished_at ON public.runs USING btree (finished_at) WHERE (finished_at IS NOT NULL);

CREATE INDEX ix_runs__held ON public.runs USING btree (thread_id) WHERE (hold IS NOT NULL);

CREATE INDEX ix_runs__lease ON public.runs USING btree (lease_expires_at) WHERE (status = 'running'::text);

CREATE INDEX ix_runs__not_succeeded ON public.runs USING btree (tenant_id, status, id) WHERE (status = ANY (ARRAY['failed'::text, 'canceled'::text, 'merged'::text]));

CREATE INDEX ix_runs__open ON public.runs USING btree (tenant_id, id) WHERE (status = ANY (ARRAY['scheduled'::text, 'queued'::text, 'running'::text, 'waiting'::text]));

CREATE INDEX ix_runs__overdue ON public.runs USING btree (rang_at) WHERE ((status = 'queued'::text) AND (rang_at < 'infinity'::timestamp with time zone));

CREATE INDEX ix_runs__parent ON public.runs USING btree (parent_run_id, id) WHERE (parent_run_id IS NOT NULL);

CREATE INDEX ix_runs__parked ON public.runs USING btree (rang_at) WHERE ((status = 'queued'::text) AND (rang_at = 'infinity'::timestamp with time zone) AND (hold IS NULL));

CREATE INDEX ix_runs__queue ON public.runs USING btree (thread_id, ((attempt > 0)) DESC, front DESC, seq) WHERE (status = 'queued'::text);

CREATE INDEX ix_runs__running_of ON public.runs USING btree (tenant_id, agent_id) WHERE (status = 'running'::text);

CREATE INDEX ix_runs__scheduled ON public.runs USING btree (start_at) WHERE (status = 'scheduled'::text);

CREATE INDEX ix_runs__scheduled_of_thread ON public.runs USING btree (thread_id) WHERE (status = 'scheduled'::text);

CREATE INDEX ix_runs__stuck ON public.runs USING btree (id) WHERE ((status = 'waiting'::text) AND (cancel_requested_at IS NOT NULL));

CREATE INDEX ix_runs__tenant_id_agent_id_id ON public.runs USING btree (tenant_id, agent_id, id);

CREATE INDEX ix_runs__tenant_id_id ON public.runs USING btree (tenant_id, id) INCLUDE (agent_id);

CREATE INDEX ix_runs__trigger ON public.runs USING btree (trigger_id, created_at) WHERE (trigger_id IS NOT NULL);

CREATE INDEX ix_runs__trigger_ended ON public.runs USING btree (finished_at) WHERE ((trigger_id IS NOT NULL) AND (NOT trigger_told) AND (status <> ALL (ARRAY['queued'::text, 'running'::text, 'waiting'::text])));

CREATE INDEX ix_runs__trigger_id_id ON public.runs USING btree (trigger_id, id) WHERE (trigger_id IS NOT NULL);

CREATE INDEX ix_runs__trigger_open ON public.runs USING btree (trigger_id) WHERE ((trigger_id IS NOT NULL) AND (status = ANY (ARRAY['queued'::text, 'running'::text, 'waiting'::text])));

CREATE INDEX ix_sent_files__run_id ON public.sent_files USING btree (run_id);

CREATE INDEX ix_sent_files__tenant_id_agent_id_id ON public.sent_files USING btree (tenant_id, agent_id, id);

CREATE INDEX ix_sent_files__tenant_id_id ON public.sent_files USING btree (tenant_id, id);

CREATE INDEX ix_sent_files__tenant_id_thread_id_id ON public.sent_files USING btree (tenant_id, thread_id, id);

CREATE INDEX ix_task_steps__tenant_id_task_id_position ON public.task_steps USING btree (tenant_id, task_id, "position");

CREATE INDEX ix_tasks__parked ON public.tasks USING btree (tenant_id, id) WHERE ((status = 'active'::text) AND (parked_reason IS NOT NULL));

CREATE INDEX ix_tasks__tenant_id_owner_agent_id_id ON public.tasks USING btree (tenant_id, owner_agent_id, id);

CREATE INDEX ix_tasks__tenant_id_parent_task_id_id ON public.tasks USING btree (tenant_id, parent_task_id, id) WHERE (parent_task_id IS NOT NULL);

CREATE INDEX ix_tasks__tenant_id_status_id ON public.tasks USING btree (tenant_id, status, id);

CREATE INDEX ix_tasks__work ON public.tasks USING btree (tenant_id, work_at) WHERE ((work_at IS NOT NULL) AND (working_run_id IS NULL));

CREATE INDEX ix_tasks__working ON public.tasks USING btree (working_run_id) WHERE (working_run_id IS NOT NULL);

CREATE INDEX ix_thread_heads__thread_id_id ON public.thread_heads USING btree (thread_id, id);

CREATE INDEX ix_threads__archived ON public.threads USING btree (tenant_id, id) WHERE (archived AND (deleted_at IS NULL));

CREATE INDEX ix_threads__deleted ON public.threads USING btree (deleted_at) WHERE ((deleted_at IS NOT NULL) AND (purge_at IS NULL));

CREATE INDEX ix_threads__ephemeral ON public.threads USING btree (created_at) WHERE (ephemeral AND (purge_at IS NULL));

CREATE INDEX ix_threads__forked_from ON public.threads USING btree (forked_from_turn_id) WHERE (forked_from_turn_id IS NOT NULL);

CREATE INDEX ix_threads__forks ON public.threads USING btree (tenant_id, forked_from_thread_id, id) WHERE ((forked_from_thread_id IS NOT NULL) AND (deleted_at IS NULL));

CREATE INDEX ix_threads__listed ON public.threads USING btree (tenant_id, ephemeral, id) WHERE (deleted_at IS NULL);

CREATE INDEX ix_threads__listed_of_agent ON public.threads USING btree (tenant_id, agent_id, ephemeral, id) WHERE (deleted_at IS NULL);

CREATE INDEX ix_threads__listed_of_creator ON public.threads USING btree (tenant_id, created_by, id) WHERE ((created_by IS NOT NULL) AND (deleted_at IS NULL) AND (NOT ephemeral));

CREATE INDEX ix_threads__listed_of_origin ON public.threads USING btree (tenant_id, origin, id) WHERE ((deleted_at IS NULL) AND (NOT ephemeral));

CREATE INDEX ix_threads__pinned ON public.threads USING btree (tenant_id, id) WHERE (pinned AND (deleted_at IS NULL));

CREATE INDEX ix_threads__purge ON public.threads USING btree (purge_at) WHERE (purge_at IS NOT NULL);

CREATE INDEX ix_trigger_firings__fired_at ON public.trigger_firings USING btree (fired_at);

CREATE INDEX ix_trigger_firings__queued ON public.trigger_firings USING btree (trigger_id, scheduled_for) WHERE (outcome = 'queued'::text);

CREATE INDEX ix_trigger_firings__run_id ON public.trigger_firings USING btree (run_id) WHERE (run_id IS NOT NULL);

CREATE INDEX ix_triggers__due ON public.triggers USING btree (next_fire_at) WHERE (next_fire_at IS NOT NULL);

CREATE INDEX ix_triggers__paused ON public.triggers USING btree (tenant_id, id) WHERE ((paused_reason IS NOT NULL) AND (deleted_at IS NULL));

CREATE INDEX ix_triggers__tenant_id_agent_id_id ON public.triggers USING btree (tenant_id, agent_id, id) WHERE (deleted_at IS NULL);

CREATE INDEX ix_triggers__tenant_id_id ON public.triggers USING btree (tenant_id, id) WHERE (deleted_at IS NULL);

CREATE INDEX ix_triggers__thread_id ON public.triggers USING btree (thread_id) WHERE ((thread_id IS NOT NULL) AND (deleted_at IS NULL));

CREATE INDEX ix_turns__parent_turn_id ON public.turns USING btree (parent_turn_id);

CREATE INDEX ix_turns__thread_id_depth ON public.turns USING btree (thread_id, depth);

CREATE INDEX ix_upkeep_cursors__work_due_at ON public.upkeep_cursors USING btree (work, due_at);

CREATE INDEX ix_usage__tenant_id_created_at ON public.usage USING btree (tenant_id, created_at) INCLUDE (agent_id, model, run_id, duration_ms, model_calls, input_tokens, output_tokens, cache_read_tokens, cache_write_tokens, cost_usd);

CREATE INDEX ix_webhooks__tenant_id_id ON public.webhooks USING btree (tenant_id, id);

CREATE INDEX ix_work_order_keys__expires_at ON public.work_order_keys USING btree (expires_at);

CREATE INDEX ix_work_order_keys__order_id ON public.work_order_keys USING btree (order_id);

CREATE INDEX ix_work_order_parts__open ON public.work_order_parts USING btree (order_id) WHERE (stop_reason IS NULL);

CREATE INDEX ix_work_order_parts__order_id_id ON public.work_order_parts USING btree (order_id, id);

CREATE INDEX ix_work_order_secrets__tenant_id_id ON public.work_order_secrets USING btree (tenant_id, id);

CREATE INDEX ix_work_order_trail__order_id_id ON public.work_order_trail USING btree (order_id, id);

CREATE INDEX ix_work_orders__ended_at ON public.work_orders USING btree (ended_at) WHERE (state = 'ended'::text);

CREATE INDEX ix_work_orders__open ON public.work_orders USING btree (id) WHERE (state <> 'ended'::text);

CREATE INDEX ix_work_orders__review ON public.work_orders USING btree (tenant_id, id) WHERE (state = 'review'::text);

CREATE INDEX ix_work_orders__tenant_id_id ON public.work_orders USING btree (tenant_id, id);

CREATE UNIQUE INDEX uq_deliveries__run_end ON public.deliveries USING btree (run_id, target) WHERE (kind = 'run_completed'::text);

CREATE UNIQUE INDEX uq_effects__run_id_kind ON public.effects USING btree (run_id, kind);

CREATE UNIQUE INDEX uq_embeddings__message_id_model ON public.embeddings USING btree (message_id, model);

CREATE UNIQUE INDEX uq_feedback__of_author ON public.feedback USING btree (run_id, name, key_id, author, step) NULLS NOT DISTINCT;

CREATE UNIQUE INDEX uq_messages__turn_id_seq ON public.messages USING btree (turn_id, seq);

CREATE UNIQUE INDEX uq_orchestration_agents__thread_id ON public.orchestration_agents USING btree (thread_id);

CREATE UNIQUE INDEX uq_orchestration_messages__send_key ON public.orchestration_messages USING btree (orchestration_id, send_key);

CREATE UNIQUE INDEX uq_orchestrations__start_key ON public.orchestrations USING btree (tenant_id, start_key) WHERE (start_key IS NOT NULL);

CREATE UNIQUE INDEX uq_run_waits__run_id_tool_call_id ON public.run_waits USING btree (run_id, tool_call_id) WHERE (status = 'open'::text);

CREATE UNIQUE INDEX uq_runs__running_thread ON public.runs USING btree (thread_id) WHERE (status = 'running'::text);

CREATE UNIQUE INDEX uq_runs__thread_id_seq ON public.runs USING btree (thread_id, seq);

CREATE UNIQUE INDEX uq_task_changes__task_id_revision ON public.task_changes USING btree (tenant_id, task_id, revision);

CREATE UNIQUE INDEX uq_task_resources__task_id_value ON public.task_resources USING btree (tenant_id, task_id, value);

CREATE UNIQUE INDEX uq_tasks__parent_step_id ON public.tasks USING btree (parent_step_id) WHERE ((parent_step_id IS NOT NULL) AND (status <> 'canceled'::text));

CREATE UNIQUE INDEX uq_threads__tenant_id_label ON public.threads USING btree (tenant_id, label) WHERE ((label IS NOT NULL) AND (deleted_at IS NULL));

CREATE UNIQUE INDEX uq_threads__tenant_id_task_id ON public.threads USING btree (tenant_id, task_id) WHERE ((task_id IS NOT NULL) AND (deleted_at IS NULL));

CREATE UNIQUE INDEX uq_tool_calls__turn_id_call_id ON public.tool_calls USING btree (turn_id, call_id);

CREATE UNIQUE INDEX uq_trigger_firings__occurrence ON public.trigger_firings USING btree (trigger_id, scheduled_for);

CREATE UNIQUE INDEX uq_turns__run_id ON public.turns USING btree (run_id);

CREATE UNIQUE INDEX uq_usage__run_id ON public.usage USING btree (run_id);

CREATE UNIQUE INDEX uq_usage__turn_id ON public.usage USING btree (turn_id);

CREATE UNIQUE INDEX uq_work_order_parts__position ON public.work_order_parts USING btree (order_id, round, kind, "position");

CREATE UNIQUE INDEX uq_work_order_parts__run_id ON public.work_order_parts USING btree (run_id);

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.agents FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["version", "max_running", "max_cost_usd_per_day", "needs", "code", "updated_at"], "documents": ["spec"], "id": ["id"], "kind": "agent", "marks": [["renamed_to", "renamed"], ["deleted_at", "deleted"]], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.api_keys FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["id"], "kind": "key", "marks": [["revoked_at", "revoked"], ["replaced_by", "rotated"]], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.channel_pairings FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["code_hash", "code_expires_at", "name"], "documents": [], "id": ["id"], "kind": "pairing", "marks": [["paired_at", "confirmed"]], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER DELETE OR UPDATE ON public.feedback FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["agent_id", "updated_at"], "documents": [], "id": ["id"], "kind": "feedback", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.memories FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["id"], "kind": "memory", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.notes FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["updated_at"], "documents": [], "id": ["id"], "kind": "note", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.orchestration_configs FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["version"], "kind": "orchestration_config", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT ON public.orchestrations FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["id"], "kind": "orchestration", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.push_configs FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["run_id", "name"], "kind": "push_config", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER UPDATE OF answer ON public.run_waits FOR EACH ROW WHEN (((new.status = 'resolved'::text) AND (old.status = 'open'::text) AND (new.kind = ANY (ARRAY['user'::text, 'approval'::text])) AND (current_setting('nova.actor'::text, true) <> ''::text))) EXECUTE FUNCTION public.record_answer();

CREATE TRIGGER audit AFTER DELETE OR UPDATE OF cancel_requested_at ON public.runs FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["id"], "kind": "run", "marks": [["cancel_requested_at", "canceled"]], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.secrets FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["updated_by", "updated_at"], "documents": [], "id": ["name"], "kind": "secret", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER DELETE ON public.sent_files FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["id"], "kind": "file", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.skills FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["name"], "kind": "skill", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.switches FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["scope", "target"], "kind": "pause", "marks": [], "tenant": "tenant_id", "unless": {"scope": "rename"}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.tasks FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["work_at", "working_run_id", "worked_revision", "idle_invocations", "updated_at"], "documents": [], "id": ["id"], "kind": "task", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.tenants FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["next_task_id"], "documents": ["ceilings"], "id": ["id"], "kind": "tenant", "marks": [["ending_at", "ended"]], "tenant": "id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.thread_states FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["version", "updated_at"], "documents": [], "id": ["thread_id"], "kind": "thread_state", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER UPDATE OF title, label, meta, pinned, archived, deleted_at ON public.threads FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["updated_at"], "documents": [], "id": ["id"], "kind": "thread", "marks": [["deleted_at", "deleted"]], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.triggers FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["failures", "gate_seen", "next_slot_at", "next_fire_at", "updated_at"], "documents": [], "id": ["id"], "kind": "trigger", "marks": [["deleted_at", "deleted"]], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.webhooks FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": ["failures", "failing_since", "rests_until", "updated_at"], "documents": [], "id": ["id"], "kind": "webhook", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.work_order_policies FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["policy_id", "number"], "kind": "order_policy", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER audit AFTER INSERT OR DELETE OR UPDATE ON public.work_order_secrets FOR EACH ROW WHEN ((current_setting('nova.actor'::text, true) <> ''::text)) EXECUTE FUNCTION public.record_audit('{"bookkeeping": [], "documents": [], "id": ["id"], "kind": "order_secret", "marks": [], "tenant": "tenant_id", "unless": {}}');

CREATE TRIGGER deliver AFTER INSERT ON public.audit_events FOR EACH ROW EXECUTE FUNCTION public.deliver_audit();

CREATE TRIGGER keep_ceilings BEFORE UPDATE OF ceilings ON public.tenants FOR EACH ROW WHEN (((CURRENT_USER = 'nova_tenant'::name) AND (old.ceilings IS DISTINCT FROM new.ceilings))) EXECUTE FUNCTION public.keep_ceilings();

CREATE TRIGGER record_delete AFTER DELETE ON public.feedback FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.record_end_of_feedback();

CREATE TRIGGER record_delete AFTER DELETE ON public.switches FOR EACH ROW WHEN ((old.scope <> 'rename'::text)) EXECUTE FUNCTION public.record_end_of_switches();

CREATE TRIGGER record_delete AFTER DELETE ON public.webhooks FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.record_end_of_webhooks();

CREATE TRIGGER record_insert AFTER INSERT ON public.deliveries FOR EACH ROW WHEN ((new.target = 'user'::text)) EXECUTE FUNCTION public.record_change_of_deliveries();

CREATE TRIGGER record_insert AFTER INSERT ON public.feedback FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.record_change_of_feedback();

CREATE TRIGGER record_insert AFTER INSERT ON public.orchestration_agents FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.record_change_of_orchestration_agents();

CREATE TRIGGER record_insert AFTER INSERT ON public.orchestrations FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.record_change_of_orchestrations();

CREATE TRIGGER record_insert AFTER INSERT ON public.run_waits FOR EACH ROW WHEN (((new.status = 'open'::text) AND (new.kind = ANY (ARRAY['user'::text, 'approval'::text, 'client_tool'::text])))) EXECUTE FUNCTION public.record_change_of_run_waits();

CREATE TRIGGER record_insert AFTER INSERT ON public.runs FOR EACH ROW WHEN ((new.finished_at IS NULL)) EXECUTE FUNCTION public.record_change_of_runs();

CREATE TRIGGER record_insert AFTER INSERT ON public.switches FOR EACH ROW WHEN ((new.scope <> 'rename'::text)) EXECUTE FUNCTION public.record_change_of_switches();

CREATE TRIGGER record_insert AFTER INSERT ON public.tasks FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.record_change_of_tasks();

CREATE TRIGGER record_insert AFTER INSERT ON public.trigger_firings FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.record_change_of_trigger_firings();

CREATE TRIGGER record_insert AFTER INSERT ON public.triggers FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.record_change_of_triggers();

CREATE TRIGGER record_insert AFTER INSERT ON public.webhooks FOR EACH ROW WHEN (true) EXECUTE FUNCTION public.record_change_of_webhooks();

CREATE TRIGGER record_update AFTER UPDATE OF status ON public.deliveries FOR EACH ROW WHEN (((new.target = 'user'::text) AND (old.status IS DISTINCT FROM new.status))) EXECUTE FUNCTION public.record_change_of_deliveries();

CREATE TRIGGER record_update AFTER UPDATE ON public.feedback FOR EACH ROW WHEN (((old.score IS DISTINCT FROM new.score) OR (old.label IS DISTINCT FROM new.label) OR (old.comment IS DISTINCT FROM new.comment))) EXECUTE FUNCTION public.record_change_of_feedback();

CREATE TRIGGER record_update AFTER UPDATE OF state ON public.orchestration_agents FOR EACH ROW WHEN ((old.state IS DISTINCT FROM new.state)) EXECUTE FUNCTION public.record_change_of_orchestration_agents();

CREATE TRIGGER record_update AFTER UPDATE OF finished_at ON public.orchestrations FOR EACH ROW WHEN ((old.finished_at IS DISTINCT FROM new.finished_at)) EXECUTE FUNCTION public.record_change_of_orchestrations();

CREATE TRIGGER record_update AFTER UPDATE OF status ON public.run_waits FOR EACH ROW WHEN (((new.kind = ANY (ARRAY['user'::text, 'approval'::text, 'client_tool'::text])) AND (old.status IS DISTINCT FROM new.status))) EXECUTE FUNCTION public.record_change_of_run_waits();

CREATE TRIGGER record_update AFTER UPDATE OF status, hold ON public.runs FOR EACH ROW WHEN (((old.status IS DISTINCT FROM new.status) OR (old.hold IS DISTINCT FROM new.hold))) EXECUTE FUNCTION public.record_change_of_runs();

CREATE TRIGGER record_update AFTER UPDATE ON public.tasks FOR EACH ROW WHEN (((old.revision IS DISTINCT FROM new.revision) OR (old.status IS DISTINCT FROM new.status) OR (old.parked_reason IS DISTINCT FROM new.parked_reason) OR (old.working_run_id IS DISTINCT FROM new.working_run_id))) EXECUTE FUNCTION public.record_change_of_tasks();

CREATE TRIGGER record_update AFTER UPDATE OF title, pinned, archived, deleted_at ON public.threads FOR EACH ROW WHEN (((old.title IS DISTINCT FROM new.title) OR (old.pinned IS DISTINCT FROM new.pinned) OR (old.archived IS DISTINCT FROM new.archived) OR (old.deleted_at IS DISTINCT FROM new.deleted_at))) EXECUTE FUNCTION public.record_change_of_threads();

CREATE TRIGGER record_update AFTER UPDATE OF outcome ON public.trigger_firings FOR EACH ROW WHEN ((old.outcome IS DISTINCT FROM new.outcome)) EXECUTE FUNCTION public.record_change_of_trigger_firings();

CREATE TRIGGER record_update AFTER UPDATE ON public.triggers FOR EACH ROW WHEN (((old.updated_at IS DISTINCT FROM new.updated_at) OR (old.enabled IS DISTINCT FROM new.enabled) OR (old.paused_reason IS DISTINCT FROM new.paused_reason) OR (old.failures IS DISTINCT FROM new.failures) OR (old.deleted_at IS DISTINCT FROM new.deleted_at))) EXECUTE FUNCTION public.record_change_of_triggers();

CREATE TRIGGER record_update AFTER UPDATE ON public.webhooks FOR EACH ROW WHEN (((old.updated_at IS DISTINCT FROM new.updated_at) OR (old.enabled IS DISTINCT FROM new.enabled) OR (old.disabled_reason IS DISTINCT FROM new.disabled_reason) OR (old.rests_until IS DISTINCT FROM new.rests_until))) EXECUTE FUNCTION public.record_change_of_webhooks();

ALTER TABLE ONLY public.agent_versions
    ADD CONSTRAINT fk_agent_versions__tenant_id_agent_id FOREIGN KEY (tenant_id, agent_id) REFERENCES public.agents(tenant_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.agents
    ADD CONSTRAINT fk_agents__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.api_keys
    ADD CONSTRAINT fk_api_keys__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.channel_pairings
    ADD CONSTRAINT fk_channel_pairings__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.compactions
    ADD CONSTRAINT fk_compactions__turn_id FOREIGN KEY (turn_id) REFERENCES public.turns(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.effects
    ADD CONSTRAINT fk_effects__run_id FOREIGN KEY (run_id) REFERENCES public.runs(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.embeddings
    ADD CONSTRAINT fk_embeddings__message_id FOREIGN KEY (message_id) REFERENCES public.messages(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.embeddings
    ADD CONSTRAINT fk_embeddings__thread_id FOREIGN KEY (thread_id) REFERENCES public.threads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.engine_sessions
    ADD CONSTRAINT fk_engine_sessions__thread_id FOREIGN KEY (thread_id) REFERENCES public.threads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.feedback
    ADD CONSTRAINT fk_feedback__run_id FOREIGN KEY (run_id) REFERENCES public.runs(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.leases
    ADD CONSTRAINT fk_leases__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.memories
    ADD CONSTRAINT fk_memories__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.message_texts
    ADD CONSTRAINT fk_message_texts__message_id FOREIGN KEY (message_id) REFERENCES public.messages(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.message_texts
    ADD CONSTRAINT fk_message_texts__thread_id FOREIGN KEY (thread_id) REFERENCES public.threads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.messages
    ADD CONSTRAINT fk_messages__turn_id FOREIGN KEY (turn_id) REFERENCES public.turns(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.model_calls
    ADD CONSTRAINT fk_model_calls__turn_id FOREIGN KEY (turn_id) REFERENCES public.turns(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.model_judgements
    ADD CONSTRAINT fk_model_judgements__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.model_rankings
    ADD CONSTRAINT fk_model_rankings__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.notes
    ADD CONSTRAINT fk_notes__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.orchestration_agents
    ADD CONSTRAINT fk_orchestration_agents__orchestration_id FOREIGN KEY (orchestration_id) REFERENCES public.orchestrations(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.orchestration_agents
    ADD CONSTRAINT fk_orchestration_agents__thread_id FOREIGN KEY (thread_id) REFERENCES public.threads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.orchestration_configs
    ADD CONSTRAINT fk_orchestration_configs__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.orchestration_messages
    ADD CONSTRAINT fk_orchestration_messages__orchestration_id FOREIGN KEY (orchestration_id) REFERENCES public.orchestrations(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.orchestrations
    ADD CONSTRAINT fk_orchestrations__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.orchestrations
    ADD CONSTRAINT fk_orchestrations__thread_id FOREIGN KEY (thread_id) REFERENCES public.threads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.people
    ADD CONSTRAINT fk_people__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.project_items
    ADD CONSTRAINT fk_project_items__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.push_configs
    ADD CONSTRAINT fk_push_configs__run_id FOREIGN KEY (run_id) REFERENCES public.runs(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.run_attempts
    ADD CONSTRAINT fk_run_attempts__run_id FOREIGN KEY (run_id) REFERENCES public.runs(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.run_lists
    ADD CONSTRAINT fk_run_lists__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.run_waits
    ADD CONSTRAINT fk_run_waits__run_id FOREIGN KEY (run_id) REFERENCES public.runs(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.runs
    ADD CONSTRAINT fk_runs__thread_id FOREIGN KEY (thread_id) REFERENCES public.threads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.secrets
    ADD CONSTRAINT fk_secrets__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.sent_files
    ADD CONSTRAINT fk_sent_files__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.sign_ins
    ADD CONSTRAINT fk_sign_ins__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.skill_files
    ADD CONSTRAINT fk_skill_files__tenant_id_skill_name FOREIGN KEY (tenant_id, skill_name) REFERENCES public.skills(tenant_id, name) ON DELETE CASCADE;

ALTER TABLE ONLY public.skills
    ADD CONSTRAINT fk_skills__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.task_changes
    ADD CONSTRAINT fk_task_changes__tenant_id_task_id FOREIGN KEY (tenant_id, task_id) REFERENCES public.tasks(tenant_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.task_resources
    ADD CONSTRAINT fk_task_resources__tenant_id_task_id FOREIGN KEY (tenant_id, task_id) REFERENCES public.tasks(tenant_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.task_steps
    ADD CONSTRAINT fk_task_steps__tenant_id_task_id FOREIGN KEY (tenant_id, task_id) REFERENCES public.tasks(tenant_id, id) ON DELETE CASCADE;

ALTER TABLE ONLY public.tasks
    ADD CONSTRAINT fk_tasks__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.thread_heads
    ADD CONSTRAINT fk_thread_heads__thread_id FOREIGN KEY (thread_id) REFERENCES public.threads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.thread_states
    ADD CONSTRAINT fk_thread_states__thread_id FOREIGN KEY (thread_id) REFERENCES public.threads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.threads
    ADD CONSTRAINT fk_threads__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.tool_calls
    ADD CONSTRAINT fk_tool_calls__turn_id FOREIGN KEY (turn_id) REFERENCES public.turns(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.trigger_firings
    ADD CONSTRAINT fk_trigger_firings__trigger_id FOREIGN KEY (trigger_id) REFERENCES public.triggers(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.triggers
    ADD CONSTRAINT fk_triggers__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.turns
    ADD CONSTRAINT fk_turns__thread_id FOREIGN KEY (thread_id) REFERENCES public.threads(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.upkeep_cursors
    ADD CONSTRAINT fk_upkeep_cursors__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.webhooks
    ADD CONSTRAINT fk_webhooks__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.work_order_keys
    ADD CONSTRAINT fk_work_order_keys__order_id FOREIGN KEY (order_id) REFERENCES public.work_orders(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.work_order_parts
    ADD CONSTRAINT fk_work_order_parts__order_id FOREIGN KEY (order_id) REFERENCES public.work_orders(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.work_order_policies
    ADD CONSTRAINT fk_work_order_policies__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.work_order_secrets
    ADD CONSTRAINT fk_work_order_secrets__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.work_order_trail
    ADD CONSTRAINT fk_work_order_trail__order_id FOREIGN KEY (order_id) REFERENCES public.work_orders(id) ON DELETE CASCADE;

ALTER TABLE ONLY public.work_orders
    ADD CONSTRAINT fk_work_orders__tenant_id FOREIGN KEY (tenant_id) REFERENCES public.tenants(id) ON DELETE CASCADE;

ALTER TABLE public.agent_versions ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.agents ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.api_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.audit_chains ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.audit_events ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.changes ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.channel_pairings ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.compactions ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.deliveries ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.effects ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.embeddings ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.engine_sessions ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.feedback ENABLE ROW LEVEL SECURITY;

CREATE POLICY fleet ON public.agent_versions TO nova_fleet USING (true);

CREATE POLICY fleet ON public.agents TO nova_fleet USING (true);

CREATE POLICY fleet ON public.api_keys TO nova_fleet USING (true);

CREATE POLICY fleet ON public.audit_chains TO nova_fleet USING (true);

CREATE POLICY fleet ON public.audit_events TO nova_fleet USING (true);

CREATE POLICY fleet ON public.changes TO nova_fleet USING (true);

CREATE POLICY fleet ON public.channel_pairings TO nova_fleet USING (true);

CREATE POLICY fleet ON public.compactions TO nova_fleet USING (true);

CREATE POLICY fleet ON public.deliveries TO nova_fleet USING (true);

CREATE POLICY fleet ON public.effects TO nova_fleet USING (true);

CREATE POLICY fleet ON public.embeddings TO nova_fleet USING (true);

CREATE POLICY fleet ON public.engine_sessions TO nova_fleet USING (true);

CREATE POLICY fleet ON public.feedback TO nova_fleet USING (true);

CREATE POLICY fleet ON public.idempotency_keys TO nova_fleet USING (true);

CREATE POLICY fleet ON public.leases TO nova_fleet USING (true);

CREATE POLICY fleet ON public.memories TO nova_fleet USING (true);

CREATE POLICY fleet ON public.message_texts TO nova_fleet USING (true);

CREATE POLICY fleet ON public.messages TO nova_fleet USING (true);

CREATE POLICY fleet ON public.model_calls TO nova_fleet USING (true);

CREATE POLICY fleet ON public.model_judgements TO nova_fleet USING (true);

CREATE POLICY fleet ON public.model_rankings TO nova_fleet USING (true);

CREATE POLICY fleet ON public.notes TO nova_fleet USING (true);

CREATE POLICY fleet ON public.orchestration_agents TO nova_fleet USING (true);

CREATE POLICY fleet ON public.orchestration_configs TO nova_fleet USING (true);

CREATE POLICY fleet ON public.orchestration_messages TO nova_fleet USING (true);

CREATE POLICY fleet ON public.orchestrations TO nova_fleet USING (true);

CREATE POLICY fleet ON public.people TO nova_fleet USING (true);

CREATE POLICY fleet ON public.project_items TO nova_fleet USING (true);

CREATE POLICY fleet ON public.push_configs TO nova_fleet USING (true);

CREATE POLICY fleet ON public.request_parts TO nova_fleet USING (true);

CREATE POLICY fleet ON public.run_attempts TO nova_fleet USING (true);

CREATE POLICY fleet ON public.run_lists TO nova_fleet USING (true);

CREATE POLICY fleet ON public.run_waits TO nova_fleet USING (true);

CREATE POLICY fleet ON public.runs TO nova_fleet USING (true);

CREATE POLICY fleet ON public.secrets TO nova_fleet USING (true);

CREATE POLICY fleet ON public.sent_files TO nova_fleet USING (true);

CREATE POLICY fleet ON public.sign_ins TO nova_fleet USING (true);

CREATE POLICY fleet ON public.skill_files TO nova_fleet USING (true);

CREATE POLICY fleet ON public.skills TO nova_fleet USING (true);

CREATE POLICY fleet ON public.switches TO nova_fleet USING (true);

CREATE POLICY fleet ON public.task_changes TO nova_fleet USING (true);

CREATE POLICY fleet ON public.task_resources TO nova_fleet USING (true);

CREATE POLICY fleet ON public.task_steps TO nova_fleet USING (true);

CREATE POLICY fleet ON public.tasks TO nova_fleet USING (true);

CREATE POLICY fleet ON public.tenants TO nova_fleet USING (true);

CREATE POLICY fleet ON public.thread_heads TO nova_fleet USING (true);

CREATE POLICY fleet ON public.thread_states TO nova_fleet USING (true);

CREATE POLICY fleet ON public.threads TO nova_fleet USING (true);

CREATE POLICY fleet ON public.tool_calls TO nova_fleet USING (true);

CREATE POLICY fleet ON public.trigger_firings TO nova_fleet USING (true);

CREATE POLICY fleet ON public.triggers TO nova_fleet USING (true);

CREATE POLICY fleet ON public.turns TO nova_fleet USING (true);

CREATE POLICY fleet ON public.upkeep_cursors TO nova_fleet USING (true);

CREATE POLICY fleet ON public.usage TO nova_fleet USING (true);

CREATE POLICY fleet ON public.webhooks TO nova_fleet USING (true);

CREATE POLICY fleet ON public.work_order_keys TO nova_fleet USING (true);

CREATE POLICY fleet ON public.work_order_parts TO nova_fleet USING (true);

CREATE POLICY fleet ON public.work_order_policies TO nova_fleet USING (true);

CREATE POLICY fleet ON public.work_order_secrets TO nova_fleet USING (true);

CREATE POLICY fleet ON public.work_order_trail TO nova_fleet USING (true);

CREATE POLICY fleet ON public.work_orders TO nova_fleet USING (true);

CREATE POLICY fleet ON public.worker_installs TO nova_fleet USING (true);

CREATE POLICY fleet ON public.worker_sessions TO nova_fleet USING (true);

CREATE POLICY fleet_wide ON public.changes FOR SELECT TO nova_tenant USING ((tenant_id = ''::text));

CREATE POLICY fleet_wide ON public.switches FOR SELECT TO nova_tenant USING ((tenant_id = ''::text));

ALTER TABLE public.idempotency_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.leases ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.memories ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.message_texts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.messages ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.model_calls ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.model_judgements ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.model_rankings ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.notes ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.orchestration_agents ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.orchestration_configs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.orchestration_messages ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.orchestrations ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.people ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.project_items ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.push_configs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.request_parts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.run_attempts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.run_lists ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.run_waits ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.runs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.secrets ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.sent_files ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.sign_ins ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.skill_files ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.skills ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.switches ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.task_changes ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.task_resources ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.task_steps ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.tasks ENABLE ROW LEVEL SECURITY;

CREATE POLICY tenant ON public.agent_versions TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.agents TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.api_keys TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.audit_chains TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.audit_events TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.changes TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.channel_pairings TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.compactions TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.deliveries TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.effects TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.embeddings TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.engine_sessions TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.feedback TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.idempotency_keys TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.leases TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.memories TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.message_texts TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.messages TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.model_calls TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.model_judgements TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.model_rankings TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.notes TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.orchestration_agents TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.orchestration_configs TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.orchestration_messages TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.orchestrations TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.people TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.project_items TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.push_configs TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.request_parts TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.run_attempts TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.run_lists TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.run_waits TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.runs TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.secrets TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.sent_files TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.sign_ins TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.skill_files TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.skills TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.switches TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.task_changes TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.task_resources TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.task_steps TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.tasks TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.tenants TO nova_tenant USING ((id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.thread_heads TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.thread_states TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.threads TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.tool_calls TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.trigger_firings TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.triggers TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.turns TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.upkeep_cursors TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.usage TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.webhooks TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.work_order_keys TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.work_order_parts TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.work_order_policies TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.work_order_secrets TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.work_order_trail TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.work_orders TO nova_tenant USING ((tenant_id = current_setting('nova.tenant'::text, true)));

CREATE POLICY tenant ON public.worker_installs FOR SELECT TO nova_tenant USING (true);

ALTER TABLE public.tenants ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.thread_heads ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.thread_states ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.threads ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.tool_calls ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.trigger_firings ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.triggers ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.turns ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.upkeep_cursors ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.usage ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.webhooks ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.work_order_keys ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.work_order_parts ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.work_order_policies ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.work_order_secrets ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.work_order_trail ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.work_orders ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.worker_installs ENABLE ROW LEVEL SECURITY;

ALTER TABLE public.worker_sessions ENABLE ROW LEVEL SECURITY;

GRANT USAGE ON SCHEMA public TO nova_fleet;
GRANT USAGE ON SCHEMA public TO nova_tenant;

REVOKE ALL ON FUNCTION public.delete_audit(of_tenant text, older_than_days integer, most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.delete_audit(of_tenant text, older_than_days integer, most integer) TO nova_fleet;

REVOKE ALL ON FUNCTION public.record_act(done text, kind text, target text, arguments text, of_tenant text, repeated integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.record_act(done text, kind text, target text, arguments text, of_tenant text, repeated integer) TO nova_fleet;
GRANT ALL ON FUNCTION public.record_act(done text, kind text, target text, arguments text, of_tenant text, repeated integer) TO nova_tenant;

REVOKE ALL ON FUNCTION public.record_answer() FROM PUBLIC;

REVOKE ALL ON FUNCTION public.record_audit() FROM PUBLIC;

REVOKE ALL ON FUNCTION public.seal_audit(most integer) FROM PUBLIC;
GRANT ALL ON FUNCTION public.seal_audit(most integer) TO nova_fleet;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.agent_versions TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.agent_versions TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.agents TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.agents TO nova_tenant;

GRANT SELECT ON TABLE public.alembic_version TO nova_fleet;
GRANT SELECT ON TABLE public.alembic_version TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.api_keys TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.api_keys TO nova_tenant;

GRANT SELECT ON TABLE public.audit_chains TO nova_fleet;
GRANT SELECT ON TABLE public.audit_chains TO nova_tenant;

GRANT SELECT ON TABLE public.audit_events TO nova_fleet;
GRANT SELECT ON TABLE public.audit_events TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.changes TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.changes TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.channel_pairings TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.channel_pairings TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.compactions TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.compactions TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.deliveries TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.deliveries TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.effects TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.effects TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.embeddings TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.embeddings TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.engine_sessions TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.engine_sessions TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.feedback TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.feedback TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotency_keys TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.idempotency_keys TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.leases TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.leases TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.memories TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.memories TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.message_texts TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.message_texts TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.messages TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.messages TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_calls TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_calls TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_judgements TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_judgements TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_rankings TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.model_rankings TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.notes TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.notes TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.orchestration_agents TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.orchestration_agents TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.orchestration_configs TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.orchestration_configs TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.orchestration_messages TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.orchestration_messages TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.orchestrations TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.orchestrations TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.people TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.people TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.project_items TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.project_items TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.push_configs TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.push_configs TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.request_parts TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.request_parts TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.run_attempts TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.run_attempts TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.run_lists TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.run_lists TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.run_waits TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.run_waits TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.runs TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.runs TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.secrets TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.secrets TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.sent_files TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.sent_files TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.sign_ins TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.sign_ins TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.skill_files TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.skill_files TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.skills TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.skills TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.switches TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.switches TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.task_changes TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.task_changes TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.task_resources TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.task_resources TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.task_steps TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.task_steps TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.tasks TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.tasks TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.tenants TO nova_fleet;
GRANT SELECT,INSERT,UPDATE ON TABLE public.tenants TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.thread_heads TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.thread_heads TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.thread_states TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.thread_states TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.threads TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.threads TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.tool_calls TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.tool_calls TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.trigger_firings TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.trigger_firings TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.triggers TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.triggers TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.turns TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.turns TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.upkeep_cursors TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.upkeep_cursors TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.usage TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.usage TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.webhooks TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.webhooks TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_keys TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_keys TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_parts TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_parts TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_policies TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_policies TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_secrets TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_secrets TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_trail TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_order_trail TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_orders TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.work_orders TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.worker_installs TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.worker_installs TO nova_tenant;

GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.worker_sessions TO nova_fleet;
GRANT SELECT,INSERT,DELETE,UPDATE ON TABLE public.worker_sessions TO nova_tenant;

ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT,INSERT,DELETE,UPDATE ON TABLES TO nova_fleet;
ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT,INSERT,DELETE,UPDATE ON TABLES TO nova_tenant;

INSERT INTO public.alembic_version (version_num) VALUES ('0082');
