-- Release the probe of an open breaker: its call was stopped, which says nothing about the model.
-- KEYS[1] breaker (hash, see admit.lua)
-- ARGV[1] the conversation
-- Returns nothing.
-- Invariant: changes nothing if the breaker was closed meanwhile, or if the probe is another conversation's.
if redis.call('HGET', KEYS[1], 'probe_by') == ARGV[1] then
  redis.call('HDEL', KEYS[1], 'probe_by', 'probe_rank', 'probe_until')
end
