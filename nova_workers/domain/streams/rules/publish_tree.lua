-- Add events of an agent's run to the stream of the run and to that of its orchestration.
-- KEYS[1] the run's stream, KEYS[2] the orchestration's
-- ARGV[1] entry id in the run's stream, ARGV[2] payload, ARGV[3] agent, ARGV[4] run, ARGV[5] most entries, ARGV[6] TTL in s
-- Returns 1. Fails like XADD if the run's stream has this entry or a later one; then neither stream gets one.
-- Invariant: the orchestration's stream has each entry of a run once, and none of an attempt that lost its run.
redis.call('XADD', KEYS[1], 'MAXLEN', '~', ARGV[5], ARGV[1], 'p', ARGV[2])
redis.call('XADD', KEYS[2], 'MAXLEN', '~', ARGV[5], '*', 'p', ARGV[2], 'g', ARGV[3], 'r', ARGV[4])
redis.call('EXPIRE', KEYS[2], ARGV[6])
return 1
