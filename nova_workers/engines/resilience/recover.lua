-- Close a model's breaker, because it answered a conversation.
-- KEYS[1] breaker (hash, see admit.lua), KEYS[2] failed (sorted set: conversations by the time of their failure)
-- ARGV[1] the conversation
-- Returns nothing.
-- Invariant: the other conversations that failed remain known with the time of this answer, as long as they were before.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('ZREM', KEYS[2], ARGV[1])
local left = redis.call('PTTL', KEYS[2])
local named = redis.call('HMGET', KEYS[1], 'provider', 'model', 'error')
redis.call('DEL', KEYS[1])
if left > 0 then
  redis.call('HSET', KEYS[1], 'answered_at', now, 'provider', named[1] or '', 'model', named[2] or '', 'error', named[3] or '')
  redis.call('PEXPIRE', KEYS[1], left)
end
