-- Renews the registration of a worker and stores its state and load.
-- KEYS: workers, worker
-- ARGV: worker id, epoch, state, load, lifetime of the registration in ms
-- Returns 'ok', 'unknown' (not registered) or 'stale' (registered under another epoch).
local known = redis.call('HMGET', KEYS[2], 'epoch', 'state', 'load', 'lifetime')
if not known[1] then return 'unknown' end
if known[1] ~= ARGV[2] then return 'stale' end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Every write goes to the append-only file. The load of an idle worker has 600 bytes and does not change.
if known[2] ~= ARGV[3] or known[3] ~= ARGV[4] or known[4] ~= ARGV[5] then
  redis.call('HSET', KEYS[2], 'state', ARGV[3], 'load', ARGV[4], 'lifetime', ARGV[5])
end
redis.call('PEXPIRE', KEYS[2], ARGV[5])
redis.call('ZADD', KEYS[1], now + ARGV[5], ARGV[1])
return 'ok'
