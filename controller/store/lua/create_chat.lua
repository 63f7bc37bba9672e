-- Writes a new chat, and deletes the oldest ones of a visitor who has more than the arena keeps.
-- KEYS: chat, chats of the visitor, running chats
-- ARGV: ttl ms, chat id, most chats of a visitor, prefix of the keys of chats, suffix that makes the key of its events from the
--       key of a chat, then field and value of each
-- Returns 'ok'.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[1], 'created_ms', now, 'expires_ms', now + ARGV[1], unpack(ARGV, 6))
redis.call('PEXPIRE', KEYS[1], ARGV[1])
redis.call('ZADD', KEYS[2], now, ARGV[2])
-- Those that have expired, and others until no more are left than may be.
for _, id in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
  local key = ARGV[4] .. id
  if redis.call('EXISTS', key) == 0 then
    redis.call('ZREM', KEYS[2], id)
  elseif redis.call('ZCARD', KEYS[2]) > tonumber(ARGV[3]) then
    redis.call('DEL', key, key .. ARGV[5])
    redis.call('ZREM', KEYS[2], id)
    redis.call('ZREM', KEYS[3], id)
  end
end
redis.call('PEXPIRE', KEYS[2], ARGV[1])
return 'ok'
