-- Begins a turn and makes a controller its owner.
-- KEYS: battle, events
-- ARGV: owner, ownership ms, run that the caller has read, turn number, turn json, battle ttl ms, events ttl ms,
--       then field and value of each change
-- The turn number is that of a new turn, or of the last one, which is then answered again.
-- Returns {'ok', number of the first event, id of the last event before} or {reason of the refusal}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local battle = redis.call('HMGET', KEYS[1], 'state', 'run', 'expires_ms')
local state = battle[1]
if not state then return {'missing'} end
if state ~= 'open' and state ~= 'answered' then return {state} end
if tonumber(battle[3]) < now then return {'expired'} end
if battle[2] ~= ARGV[3] then return {'streaming'} end  -- another turn has begun since the caller read
local last_id, first = '0-0', 0
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
if last[1] then
  last_id = last[1][1]
  local turn, number = string.match(last_id, '(%d+)-(%d+)')
  if turn == ARGV[4] then first = number + 1 end
end
local field = 'turn:' .. ARGV[4]
redis.call('HSET', KEYS[1], 'undo', redis.call('HGET', KEYS[1], field) or '', 'undo_turn',
  redis.call('HGET', KEYS[1], 'turn'))
redis.call('HSET', KEYS[1], 'state', 'streaming', 'run', ARGV[3] + 1, 'turn', ARGV[4], field, ARGV[5],
  'owner', ARGV[1], 'owner_until', now + ARGV[2], 'stop', '', 'finished', '', 'run_from', last_id,
  'expires_ms', now + ARGV[6])
for i = 8, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('PEXPIRE', KEYS[1], ARGV[6] * 2)
redis.call('PEXPIRE', KEYS[2], ARGV[7])
return {'ok', first, last_id}
