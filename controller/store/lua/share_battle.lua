-- Gives a voted battle a link, and keeps both for a time. A battle that has a link keeps it.
-- KEYS: battle, link
-- ARGV: id of the new link, battle id, ttl ms of both
-- Returns the id of the link, or '' where the battle has not been voted on.
local battle = redis.call('HMGET', KEYS[1], 'state', 'share')
if battle[1] ~= 'voted' then return '' end
if battle[2] then return battle[2] end
redis.call('HSET', KEYS[1], 'share', ARGV[1])
redis.call('SET', KEYS[2], ARGV[2], 'PX', ARGV[3])
local left = redis.call('PTTL', KEYS[1])
if left >= 0 and left < tonumber(ARGV[3]) then redis.call('PEXPIRE', KEYS[1], ARGV[3]) end
return ARGV[1]
