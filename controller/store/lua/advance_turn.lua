-- Appends events to a running turn, renews its ownership, changes fields of the battle, and ends the turn or hands it
-- over. Safe to repeat: the owner numbers the events, and an event that is there already is not written again.
-- KEYS: battle, events, turns
-- ARGV: battle id, owner, ownership ms, 'append' | 'finish' | 'refuse' | 'release', turn, number of the first event,
--       events ttl ms, number of events, number of the owner's very first event, then name, data and private data
--       ('' for none) of each event, then field and value of each change
-- 'refuse' discards the turn and restores the battle as it was before. 'release' gives up the ownership of a turn that
-- goes on: from now on any controller may claim it.
-- Returns 'ok', 'stop' (a stop was asked for), 'lost' (another process owns or has ended the turn), or, having done nothing,
-- the number of the first event that the store has lost (its file was cut): the owner writes that one and all behind it again.
local owned = redis.call('HMGET', KEYS[1], 'owner', 'owner_until', 'stop', 'run', 'closed_by', 'undo', 'undo_turn')
if owned[1] ~= ARGV[2] then
  return owned[5] == ARGV[2] and 'ok' or 'lost'
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local how, turn, first, count = ARGV[4], ARGV[5], tonumber(ARGV[6]), tonumber(ARGV[8])
if count > 0 then
  local written = -1
  local last = redis.call('XREVRANGE', KEYS[2], '+', '-', 'COUNT', 1)
  if last[1] then
    local last_turn, number = string.match(last[1][1], '(%d+)-(%d+)')
    if last_turn == turn then written = tonumber(number) end
  end
  local missing = math.max(written + 1, tonumber(ARGV[9]))
  if missing < first then return missing end
  for i = 0, count - 1 do
    if first + i > written then
      local id, name, data, private = turn .. '-' .. (first + i), ARGV[10 + 3 * i], ARGV[11 + 3 * i], ARGV[12 + 3 * i]
      if private == '' then
        redis.call('XADD', KEYS[2], id, 'event', name, 'data', data)
      else
        redis.call('XADD', KEYS[2], id, 'event', name, 'data', data, 'private', private)
      end
    end
  end
  if redis.call('PTTL', KEYS[2]) < 0 then redis.call('PEXPIRE', KEYS[2], ARGV[7]) end
end
if how == 'refuse' then
  local field = 'turn:' .. turn
  if owned[6] == '' then
    redis.call('HDEL', KEYS[1], field)
  else
    redis.call('HSET', KEYS[1], field, owned[6])
  end
  redis.call('HDEL', KEYS[1], 'request:' .. turn)
  redis.call('HSET', KEYS[1], 'turn', owned[7], 'state', owned[7] == '0' and 'open' or 'answered')
end
for i = 10 + 3 * count, #ARGV, 2 do
  redis.call('HSET', KEYS[1], ARGV[i], ARGV[i + 1])
end
if how == 'release' then
  redis.call('HSET', KEYS[1], 'owner', '', 'closed_by', ARGV[2], 'owner_until', now)
  redis.call('ZADD', KEYS[3], now, ARGV[1])
  return 'ok'
end
if how == 'finish' then redis.call('HSET', KEYS[1], 'ended_ms', now) end
if how ~= 'append' then
  redis.call('HSET', KEYS[1], 'owner', '', 'closed_by', ARGV[2])
  redis.call('HDEL', KEYS[1], 'undo')
  redis.call('ZREM', KEYS[3], ARGV[1])
  return 'ok'
end
-- A write costs an fsync: renew only when a third of the time has passed, or the clock was set back.
local owner_until = tonumber(owned[2])
if owner_until < now + ARGV[3] * 2 / 3 or owner_until > now + ARGV[3] then
  redis.call('HSET', KEYS[1], 'owner_until', now + ARGV[3])
  redis.call('ZADD', KEYS[3], now + ARGV[3], ARGV[1])
end
return owned[3] == owned[4] and 'stop' or 'ok'
