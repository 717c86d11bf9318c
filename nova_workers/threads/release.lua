-- Release a thread's lock and say whether somebody knocked meanwhile.
-- KEYS[1] lock, KEYS[2] knock   ARGV[1] token
-- Returns 1 when a doorbell found the lock held since the last release, 0 otherwise.
-- Invariant: only the holder's token deletes the lock; the knock is taken by exactly one release.
if redis.call('GET', KEYS[1]) == ARGV[1] then
  redis.call('DEL', KEYS[1])
end
return redis.call('DEL', KEYS[2])
