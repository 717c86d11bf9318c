-- Return whether a model may be called now, and with which keys.
-- KEYS[1] breaker (hash: failures, open_until, probe_until), KEYS[2..] cool-downs (hash: until, reason, strikes)
-- ARGV[1] failures that open the breaker, ARGV[2] lease of a probe in ms, ARGV[3] interval between checks of a probe in ms,
-- ARGV[4] number of cool-downs per profile
-- Returns {ms to wait or 0, failures, then for each cool-down its remaining ms or 0, and its reason}.
-- Invariant: a half-open breaker admits one caller, the probe, until it reports or its lease expires.
-- Times are Redis's own, so that the clocks of the workers do not matter.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local breaker = redis.call('HMGET', KEYS[1], 'failures', 'open_until', 'probe_until')
local failures = tonumber(breaker[1] or 0)
local answer = {0, failures}
local free = false
local rests = false
for i = 2, #KEYS do
  local cooling = redis.call('HMGET', KEYS[i], 'until', 'reason')
  local rest = math.max(0, tonumber(cooling[1] or 0) - now)
  rests = rests or rest > 0
  answer[#answer + 1] = rest
  answer[#answer + 1] = cooling[2] or ''
  if (i - 1) % ARGV[4] == 0 then
    free = free or not rests
    rests = false
  end
end
if failures >= tonumber(ARGV[1]) then
  local open = tonumber(breaker[2] or 0) - now
  local probe = tonumber(breaker[3] or 0) - now
  if open > 0 then
    answer[1] = open
  elseif probe > 0 then
    answer[1] = math.min(probe, tonumber(ARGV[3]))
  elseif free then
    redis.call('HSET', KEYS[1], 'probe_until', now + ARGV[2])
  end
end
return answer
