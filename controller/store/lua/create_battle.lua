-- Writes a new battle.
-- KEYS: battle, and the history of its voter if that is known by more than an address
-- ARGV: ttl ms, battle id, most battles of a history, ttl ms of a history, then field and value of each
-- Returns 'ok'.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'created_ms', now, 'expires_ms', now + ARGV[1], unpack(ARGV, 5))
-- The key lives twice as long as the battle, so that a late visitor reads "expired" and not "no such battle".
redis.call('PEXPIRE', KEYS[1], ARGV[1] * 2)
if KEYS[2] then
  redis.call('ZADD', KEYS[2], now, ARGV[2])
  redis.call('ZREMRANGEBYRANK', KEYS[2], 0, -1 - ARGV[3])
  if redis.call('PTTL', KEYS[2]) < tonumber(ARGV[4]) then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
end
return 'ok'
