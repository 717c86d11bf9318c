-- Count the failure of a conversation, and open the model's breaker at the limit.
-- KEYS[1] breaker (hash, see admit.lua), KEYS[2] failed (sorted set: conversations by the time of their failure),
-- KEYS[3] index (sorted set: keys of breakers and cool-downs by the end of their lives)
-- ARGV[1] the conversation, ARGV[2] conversations that open the breaker, ARGV[3] first open time in ms, ARGV[4] longest
-- open time in ms, ARGV[5] time between consecutive failures in ms, ARGV[6] how long a failure is remembered in ms,
-- ARGV[7] how long ago the caller's process got an answer in ms, or -1, ARGV[8] most conversations, ARGV[9] TTL of the
-- index in ms, ARGV[10] provider, ARGV[11] model, ARGV[12] error
-- Returns 1 if the breaker is open, else 0.
-- Invariant: one conversation counts once, and not at all if another one got an answer since it first failed. Only a failed
-- probe extends an open time: that of all conversations, if the probe's had not failed before, else that of the failed ones.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local breaker = redis.call('HMGET', KEYS[1], 'answered_at', 'forget_at', 'open_until', 'retry_until', 'probe_by',
  'fresh_probes', 'failed_probes')
local answered_at = tonumber(breaker[1] or 0)
if tonumber(ARGV[7]) >= 0 then
  answered_at = math.max(answered_at, now - ARGV[7])
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', now - ARGV[6])
local failed_at = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0)
local counted = failed_at == 0 or failed_at > answered_at
if counted then
  -- A failure after an answer is later than it, also within the same millisecond.
  redis.call('ZADD', KEYS[2], math.max(now, answered_at + 1), ARGV[1])
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -ARGV[8] - 1)
end
local is_open = now < tonumber(breaker[2] or 0)
local open_until = tonumber(breaker[3] or 0)
local retry_until = tonumber(breaker[4] or 0)
redis.call('HSET', KEYS[1], 'answered_at', answered_at, 'provider', ARGV[10], 'model', ARGV[11], 'error', ARGV[12])
if is_open and breaker[5] == ARGV[1] then
  if failed_at > 0 then
    local probes = redis.call('HINCRBY', KEYS[1], 'failed_probes', 1)
    retry_until = now + math.min(tonumber(ARGV[4]), ARGV[3] * 2 ^ probes)
  else
    local probes = redis.call('HINCRBY', KEYS[1], 'fresh_probes', 1)
    open_until = now + math.min(tonumber(ARGV[4]), ARGV[3] * 2 ^ probes)
    retry_until = math.max(retry_until, open_until)
  end
  redis.call('HDEL', KEYS[1], 'probe_by', 'probe_rank', 'probe_until')
elseif not is_open and counted then
  local counted_from = math.max(answered_at, now - ARGV[5])
  local failures = redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%.0f', counted_from), '+inf')
  if failures >= tonumber(ARGV[2]) then
    is_open = true
    open_until = now + ARGV[3]
    retry_until = open_until
    redis.call('HDEL', KEYS[1], 'fresh_probes', 'failed_probes', 'probe_by', 'probe_rank', 'probe_until',
      'next_by', 'next_rank', 'next_until')
    redis.call('HSET', KEYS[1], 'since', now)
  end
end
if is_open then
  redis.call('HSET', KEYS[1], 'open_until', open_until, 'retry_until', retry_until,
    'forget_at', math.max(open_until, retry_until) + ARGV[5])
end
redis.call('PEXPIRE', KEYS[1], ARGV[6])
redis.call('PEXPIRE', KEYS[2], ARGV[6])
redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', now)
redis.call('ZADD', KEYS[3], now + ARGV[6], KEYS[1])
redis.call('PEXPIRE', KEYS[3], ARGV[9])
return is_open and 1 or 0
