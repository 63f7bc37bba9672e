-- Begins a turn and makes a controller its owner. Safe to repeat with the same owner: the turn is begun once.
-- KEYS: battle, events, turns
-- ARGV: battle id, owner, ownership ms, run that the caller has read, turn number, turn json, battle ttl ms,
--       events ttl ms, Idempotency-Key of the request or '', ttl ms of the key, then field and value of each change
-- The turn number is that of a new turn, or of the last one, which is then answered again.
-- Returns {'ok', number of the first event, id of the last event before, now} or {reason of the refusal}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local battle = redis.call('HMGET', KEYS[1], 'state', 'run', 'expires_ms', 'owner')
local state = battle[1]
if not state then return {'missing'} end
local is_repeated = state == 'streaming' and battle[4] == ARGV[2]
if not is_repeated then
  if state ~= 'open' and state ~= 'answered' then return {state} end
  if tonumber(battle[3]) < now then return {'expired'} end
  if battle[2] ~= ARGV[4] then return {'streaming'} end  -- another turn has begun since the caller read
end
local last_id, first = '0-0', 0
local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
if last[1] then
  last_id = last[1][1]
  local turn, number = string.match(last_id, '(%d+)-(%d+)')
  if turn == ARGV[5] then first = number + 1 end
end
if is_repeated then return {'ok', first, last_id, now} end
local field = 'turn:' .. ARGV[5]
redis.call('HSET', KEYS[1], 'undo', redis.call('HGET', KEYS[1], field) or '', 'undo_turn',
  redis.call('HGET', KEYS[1], 'turn'))
redis.call('HSET', KEYS[1], 'state', 'streaming', 'run', ARGV[4] + 1, 'turn', ARGV[5], field, ARGV[6],
  'owner', ARGV[2], 'owner_until', now + ARGV[3], 'stop', '', 'run_from', last_id, 'began_ms', now,
  'takeovers', 0, 'request:' .. ARGV[5], ARGV[9], 'expires_ms', now + ARGV[7])
for i = 11, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
redis.call('ZADD', KEYS[3], now + ARGV[3], ARGV[1])
redis.call('PEXPIRE', KEYS[1], ARGV[10])
redis.call('PEXPIRE', KEYS[2], ARGV[8])
return {'ok', first, last_id, now}
