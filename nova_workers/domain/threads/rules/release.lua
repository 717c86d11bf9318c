-- Release a thread's lock and return whether the thread was flagged for a recheck.
-- KEYS[1] lock, KEYS[2] recheck flag   ARGV[1] token
-- Returns 1 when a doorbell found the lock held since the last release, 0 otherwise or when another token holds it now.
-- Also 1 when no token holds it: this may be a repetition whose first reply, with the flag, was lost.
-- Invariant: only the holder's token deletes the lock. Exactly one release takes the flag, and never while another token
-- holds the lock, whose own release must return it.
local holder = redis.call('GET', KEYS[1])
if holder ~= false and holder ~= ARGV[1] then
  return 0
end
redis.call('DEL', KEYS[1])
local flagged = redis.call('DEL', KEYS[2])
return holder == false and 1 or flagged
