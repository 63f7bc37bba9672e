-- Asks the owner of a running turn to end it.
-- KEYS: battle
-- Returns the state, or '' when there is no such battle.
local battle = redis.call('HMGET', KEYS[1], 'state', 'run')
if battle[1] == 'streaming' then redis.call('HSET', KEYS[1], 'stop', battle[2]) end
return battle[1] or ''
