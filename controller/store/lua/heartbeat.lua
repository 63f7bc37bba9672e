-- Renews the registration of a worker and stores its state and load.
-- KEYS: workers, worker
-- ARGV: worker id, epoch, state, load, lifetime of the registration in ms
-- Returns 'ok', 'unknown' (not registered) or 'stale' (registered under another epoch).
local epoch = redis.call('HGET', KEYS[2], 'epoch')
if not epoch then return 'unknown' end
if epoch ~= ARGV[2] then return 'stale' end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[2], 'state', ARGV[3], 'load', ARGV[4], 'beat', now)
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('ZADD', KEYS[1], now + ARGV[5], ARGV[1])
return 'ok'
