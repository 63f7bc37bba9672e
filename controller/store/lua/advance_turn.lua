-- Appends events to a running turn, renews its ownership, changes fields of the battle, and ends the turn.
-- Safe to repeat: the owner numbers the events, and an event that is there already is not written again.
-- KEYS: battle, events
-- ARGV: owner, ownership ms, 'append' | 'finish' | 'refuse', turn, number of the first event, events ttl ms,
--       number of events, then event and data of each, then field and value of each change
-- 'refuse' forgets the turn: the battle is again what it was before.
-- Returns 'ok', 'stop' (a stop was asked for) or 'lost' (the turn was ended by another process).
local owned = redis.call('HMGET', KEYS[1], 'owner', 'owner_until', 'stop', 'run', 'closed_by', 'undo', 'undo_turn')
if owned[1] ~= ARGV[1] then
  return owned[5] == ARGV[1] and 'ok' or 'lost'
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local turn, first, count = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[7])
if count > 0 then
  local written = -1
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
  if last[1] then
    local last_turn, number = string.match(last[1][1], '(%d+)-(%d+)')
    if last_turn == turn then written = tonumber(number) end
  end
  for i = 0, count - 1 do
    if first + i > written then
      redis.call('XADD', KEYS[2], turn .. '-' .. (first + i), 'event', ARGV[8 + 2 * i], 'data', ARGV[9 + 2 * i])
    end
  end
  if redis.call('PTTL', KEYS[2]) < 0 then redis.call('PEXPIRE', KEYS[2], ARGV[6]) end
end
if ARGV[3] == 'refuse' then
  local field = 'turn:' .. turn
  if owned[6] == '' then
    redis.call('HDEL', KEYS[1], field)
  else
    redis.call('HSET', KEYS[1], field, owned[6])
  end
  redis.call('HSET', KEYS[1], 'turn', owned[7], 'state', owned[7] == '0' and 'open' or 'answered')
end
for i = 8 + 2 * count, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
if ARGV[3] ~= 'append' then
  redis.call('HSET', KEYS[1], 'owner', '', 'closed_by', ARGV[1])
  redis.call('HDEL', KEYS[1], 'undo')
  return 'ok'
end
-- A write costs an fsync: renew only when a third of the time has passed.
if tonumber(owned[2]) < now + ARGV[2] * 2 / 3 then
  redis.call('HSET', KEYS[1], 'owner_until', now + ARGV[2])
end
return owned[3] == owned[4] and 'stop' or 'ok'
