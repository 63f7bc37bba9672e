-- Reads a battle. A turn whose owner did not renew its ownership is ended here with one failed event, so that no reader
-- waits for a controller that has died.
-- KEYS: battle, events
-- ARGV: events ttl ms, error json, failed event of side a, failed event of side b
-- Returns {now, fields as a flat list}; the list is empty when there is no such battle.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local owned = redis.call('HMGET', KEYS[1], 'state', 'owner_until', 'turn', 'finished')
if owned[1] == 'streaming' and tonumber(owned[2]) < now then
  local n = 0
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
  if last[1] then
    local turn, number = string.match(last[1][1], '(%d+)-(%d+)')
    if turn == owned[3] then n = number + 1 end
  end
  local failed = owned[4] == 'a' and ARGV[4] or ARGV[3]
  redis.call('XADD', KEYS[2], owned[3] .. '-' .. n, 'event', 'failed', 'data', failed)
  redis.call('XADD', KEYS[2], owned[3] .. '-' .. (n + 1), 'event', 'turn_finished', 'data',
    string.format('{"turn":%d,"state":"aborted"}', owned[3]))
  redis.call('PEXPIRE', KEYS[2], ARGV[1])
  redis.call('HSET', KEYS[1], 'state', 'aborted', 'owner', '', 'closed_by', 'reaper', 'error', ARGV[2])
end
return {now, redis.call('HGETALL', KEYS[1])}
