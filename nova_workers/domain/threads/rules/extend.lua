-- Renew a thread's lock.
-- KEYS[1] lock   ARGV[1] token, ARGV[2] TTL in ms
-- Returns 0 when another token holds the lock, 1 otherwise.
-- Invariant: it never creates the lock. Otherwise a renewal that overtakes its own release would lock the thread for no
-- worker. If Redis lost the lock (a wipe, an expiry), the claim's guard in Postgres still admits only one worker.
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return (holder == false or holder == ARGV[1]) and 1 or 0
