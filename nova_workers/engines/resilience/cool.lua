-- Put a key to rest.
-- KEYS[1] cool-down (hash: until, reason, strikes, since, provider, profile, model, error),
-- KEYS[2] index (sorted set: keys of breakers and cool-downs by the end of their lives)
-- ARGV[1] reason, ARGV[2] first rest in ms, ARGV[3] longest in ms, ARGV[4] rest that the provider requested in ms, or -1,
-- ARGV[5] how long strikes are remembered after a rest, as a multiple of it, ARGV[6] TTL of the index in ms,
-- ARGV[7] provider, ARGV[8] profile, ARGV[9] model, or empty for all, ARGV[10] error
-- Returns how long the key rests from now in ms.
-- Invariant: of concurrent failures the first sets the rest; a rest that the provider requested may only lengthen it.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local cooling = redis.call('HMGET', KEYS[1], 'until', 'strikes')
local rest = tonumber(cooling[1] or 0) - now
local requested = tonumber(ARGV[4])
if rest > 0 then
  if requested <= rest then
    return rest
  end
  rest = requested
  redis.call('HSET', KEYS[1], 'until', now + rest)
else
  local strikes = tonumber(cooling[2] or 0) + 1
  rest = requested >= 0 and requested or math.min(tonumber(ARGV[3]), ARGV[2] * 2 ^ (strikes - 1))
  redis.call('HSET', KEYS[1], 'until', now + rest, 'reason', ARGV[1], 'strikes', strikes, 'since', now,
    'provider', ARGV[7], 'profile', ARGV[8], 'model', ARGV[9], 'error', ARGV[10])
end
redis.call('PEXPIRE', KEYS[1], math.max(1, math.floor(rest * (1 + ARGV[5]))))
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now)
redis.call('ZADD', KEYS[2], now + rest, KEYS[1])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
return math.floor(rest)
