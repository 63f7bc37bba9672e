-- Reads a battle. A turn without an owner is put into the index of turns if it is missing there, which it is if a
-- controller of an earlier release began it: so some controller finds it and takes it over.
-- KEYS: battle, turns
-- ARGV: battle id
-- Returns {now, fields as a flat list}; the list is empty when there is no such battle.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local owned = redis.call('HMGET', KEYS[1], 'state', 'owner_until')
if owned[1] == 'streaming' and tonumber(owned[2]) < now then
  redis.call('ZADD', KEYS[2], 'NX', owned[2], ARGV[1])
end
return {now, redis.call('HGETALL', KEYS[1])}
