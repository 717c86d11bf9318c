-- Take a thread's lock, or flag the thread for a recheck; neither if too many doorbells wait.
-- KEYS[1] lock, KEYS[2] recheck flag, KEYS[3] queue of doorbells (optional)
-- ARGV[1] token, ARGV[2] TTL in ms, ARGV[3] most doorbells that may wait on KEYS[3]
-- Returns 1 when the token holds the lock, 0 when another does (and the flag is set), -1 when more doorbells wait.
-- Invariant: idempotent per token, so a retry whose first reply was lost does not lock itself out, however many
-- doorbells wait by then.
local holder = redis.call('GET', KEYS[1])
if KEYS[3] and holder ~= ARGV[1] and redis.call('LLEN', KEYS[3]) > tonumber(ARGV[3]) then
  return -1
end
if holder == false or holder == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
redis.call('SET', KEYS[2], '1', 'PX', ARGV[2])
return 0
