-- Removes a worker from the registry.
-- KEYS: workers, worker
-- ARGV: worker id, epoch ('' = any)
-- Returns 'ok', 'unknown' (not registered) or 'stale' (registered under another epoch).
local epoch = redis.call('HGET', KEYS[2], 'epoch')
if not epoch then return 'unknown' end
if ARGV[2] ~= '' and epoch ~= ARGV[2] then return 'stale' end
redis.call('DEL', KEYS[2])
redis.call('ZREM', KEYS[1], ARGV[1])
return 'ok'
