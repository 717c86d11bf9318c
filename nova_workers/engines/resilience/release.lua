-- Give back the leave to be the probe of a breaker that is half open: the call was stopped and says nothing of the model.
-- KEYS[1] breaker (hash: failures, open_until, probe_until)
-- Returns nothing.
-- Invariant: never makes a key that is not there, so a breaker that was closed meanwhile stays closed. Where the probe's
-- life was over and another took its place, two may try at the same time, and no more.
if redis.call('EXISTS', KEYS[1]) == 1 then
  redis.call('HSET', KEYS[1], 'probe_until', 0)
end
