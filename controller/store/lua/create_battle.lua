-- Writes a new battle.
-- KEYS: battle
-- ARGV: ttl ms, then field and value of each
-- Returns 'ok'.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'created_ms', now, 'expires_ms', now + ARGV[1], unpack(ARGV, 2))
-- The key lives twice as long as the battle, so that a late visitor reads "expired" and not "no such battle".
redis.call('PEXPIRE', KEYS[1], ARGV[1] * 2)
return 'ok'
