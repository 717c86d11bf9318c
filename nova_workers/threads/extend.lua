-- Renew a thread's lock.
-- KEYS[1] lock   ARGV[1] token, ARGV[2] TTL in ms
-- Returns 1 when the token holds the lock afterwards, 0 when another token does.
-- Invariant: a lock that Redis lost (a wipe, an expiry) is taken again by the holder of the lease; the lease in Postgres
-- and its fence decide who owns the run, the lock only spares others the attempt.
local holder = redis.call('GET', KEYS[1])
if holder == false or holder == ARGV[1] then
  redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
  return 1
end
return 0
