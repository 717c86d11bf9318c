-- Take a thread's lock, or flag the thread for a recheck.
-- KEYS[1] lock, KEYS[2] recheck flag   ARGV[1] token, ARGV[2] TTL in ms
-- Returns 1 when the token holds the lock, 0 when another does (and the flag is set).
-- Invariant: idempotent per token, so a retry whose first reply was lost does not lock itself out.
local holder = redis.call('GET', KEYS[1])
if holder == false or holder == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 0
