-- Release the probe of a half-open breaker: its call was stopped, which says nothing about the model.
-- KEYS[1] breaker (hash: failures, open_until, probe_until)
-- Returns nothing.
-- Invariant: never creates a key, so a breaker that was closed meanwhile stays closed. If the probe had expired and another
-- caller became the probe, at most two callers try at the same time.
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HSET', KEYS[1], 'probe_until', 0)
end
