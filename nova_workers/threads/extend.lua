-- Renew a thread's lock.
-- KEYS[1] lock   ARGV[1] token, ARGV[2] TTL in ms
-- Returns 0 when another token holds the lock, 1 otherwise.
-- Invariant: a lock that is gone stays gone. A renewal that overtakes its own release would else lock the thread for
-- no worker; and where Redis lost the lock (a wipe, an expiry), the claim's guard in Postgres still lets one worker through.
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
end
return (holder == false or holder == ARGV[1]) and 1 or 0
