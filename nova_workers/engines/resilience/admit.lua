-- Return whether a model may be called now by a conversation, and with which keys.
-- KEYS[1] breaker (hash), KEYS[2] failed (sorted set: conversations by the time of their failure),
-- KEYS[3..] cool-downs (hash: until, reason, strikes)
-- ARGV[1] the conversation, ARGV[2] lease of a probe in ms, ARGV[3] interval between checks of a probe in ms,
-- ARGV[4] how long after its wait a caller is expected back in ms, ARGV[5] time between consecutive failures in ms,
-- ARGV[6] number of cool-downs per profile
-- Returns {ms to wait or 0, failures, state, then for each cool-down its remaining ms or 0, and its reason}.
-- Fields of the breaker: answered_at; and while it is open: since, forget_at, open_until (for conversations that have not
-- failed), retry_until (for those that have), fresh_probes and failed_probes (probes of either that failed), probe_by,
-- probe_rank, probe_until, next_by, next_rank, next_until (the waiting conversation that has the best right to the probe).
-- A rank is the time of the conversation's failure, 0 without one: the lowest goes first.
-- Invariant: an open breaker admits one caller, the probe, until it reports or its lease expires; it does not keep a
-- conversation waiting that has not failed for one that has. None is the probe while one of a lower rank waits.
-- Times are Redis's own, so that the clocks of the workers do not matter.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local breaker = redis.call('HMGET', KEYS[1], 'answered_at', 'forget_at', 'open_until', 'retry_until',
  'probe_until', 'next_by', 'next_rank', 'next_until', 'probe_rank')
local answered_at = tonumber(breaker[1] or 0)
local is_open = now < tonumber(breaker[2] or 0)
local counted_from = math.max(answered_at, now - ARGV[5])
local answer = {0, redis.call('ZCOUNT', KEYS[2], '(' .. string.format('%.0f', counted_from), '+inf'), 'closed'}
local free = false
local rests = false
for i = 3, #KEYS do
  local cooling = redis.call('HMGET', KEYS[i], 'until', 'reason')
  local rest = math.max(0, tonumber(cooling[1] or 0) - now)
  rests = rests or rest > 0
  answer[#answer + 1] = rest
  answer[#answer + 1] = cooling[2] or ''
  if (i - 2) % ARGV[6] == 0 then
    free = free or not rests
    rests = false
  end
end
if not is_open then
  return answer
end
answer[3] = 'open'
local failed_at = tonumber(redis.call('ZSCORE', KEYS[2], ARGV[1]) or 0)
-- One that fails by itself comes last.
local rank = (failed_at > 0 and failed_at <= answered_at) and now or failed_at
local wait = tonumber(breaker[failed_at > 0 and 4 or 3] or 0) - now
local is_next = breaker[6] == ARGV[1]
local reserved = (not is_next and breaker[6]) and tonumber(breaker[8]) - now or 0
local reserved_rank = tonumber(breaker[7] or 0)
if wait <= 0 and not (rank == 0 and tonumber(breaker[9] or 0) > 0) then
  wait = math.min(tonumber(breaker[5] or 0) - now, tonumber(ARGV[3]))
end
if wait <= 0 and reserved > 0 and reserved_rank < rank then
  wait = math.min(reserved, tonumber(ARGV[3]))
end
if wait <= 0 then
  if free then
    answer[3] = 'probe'
    redis.call('HSET', KEYS[1], 'probe_by', ARGV[1], 'probe_rank', rank, 'probe_until', now + ARGV[2])
    if is_next then
      redis.call('HDEL', KEYS[1], 'next_by', 'next_rank', 'next_until')
    end
  end
  return answer
end
answer[1] = wait
if reserved <= 0 or rank < reserved_rank then
  redis.call('HSET', KEYS[1], 'next_by', ARGV[1], 'next_rank', rank, 'next_until', now + wait + ARGV[4])
end
return answer
