-- Count a model's failure, and open its breaker at the limit.
-- KEYS[1] breaker (hash: failures, open_until, probe_until)
-- ARGV[1] failures that open it, ARGV[2] how long it is open in ms, ARGV[3] TTL in ms
-- Returns how long the breaker stays open in ms, 0 if it is closed.
-- Invariant: failures of calls that began before it opened do not extend the time; a failed probe restarts it.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local failures = redis.call('HINCRBY', KEYS[1], 'failures', 1)
local open_until = tonumber(redis.call('HGET', KEYS[1], 'open_until') or 0)
if failures >= tonumber(ARGV[1]) and now >= open_until then
  open_until = now + ARGV[2]
  redis.call('HSET', KEYS[1], 'open_until', open_until, 'probe_until', 0)
end
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return math.max(0, open_until - now)
