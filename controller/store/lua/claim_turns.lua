-- Makes a controller the owner of running turns whose own controller no longer renews its ownership. The former owner
-- can write nothing from then on.
-- KEYS: turns
-- ARGV: prefix of battle keys, suffix that makes the key of its events from the key of a battle, ownership ms, most
--       take-overs of one turn from owners that have not released it, longest age of a turn in ms, then a new owner id for each turn that may be claimed
-- Returns {now, claims}, a claim being {battle id, owner, number of the next event, '1' if the turn may only be ended,
--       fields of the battle as a flat list}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local claims, most = {}, #ARGV - 5
-- Ownership that lasts longer than any can was taken before the clock was set back: its owner has renewed it, or is gone.
local latest = now + 2 * ARGV[3]
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now, 'LIMIT', 0, most)
for _, battle_id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], latest, '+inf', 'LIMIT', 0, most - #due)) do
  due[#due + 1] = battle_id
end
for i, battle_id in ipairs(due) do
  local key = ARGV[1] .. battle_id
  local battle = redis.call('HMGET', key, 'state', 'owner_until', 'turn', 'takeovers', 'began_ms', 'owner')
  if battle[1] ~= 'streaming' then
    redis.call('ZREM', KEYS[1], battle_id)
  elseif tonumber(battle[2]) > now and tonumber(battle[2]) < latest then
    redis.call('ZADD', KEYS[1], battle[2], battle_id)
  else
    local first, last = 0, redis.call('XREVRANGE', key .. ARGV[2], '+', '-', 'COUNT', 1)
    if last[1] then
      local turn, number = string.match(last[1][1], '(%d+)-(%d+)')
      if turn == battle[3] then first = number + 1 end
    end
    local num_before, began = tonumber(battle[4] or 0), tonumber(battle[5] or battle[2])
    local is_last = num_before >= tonumber(ARGV[4]) or now - began > tonumber(ARGV[5])
    -- An owner that has released the turn did not end by it.
    local num_ended = num_before + (battle[6] == '' and 0 or 1)
    redis.call('HSET', key, 'owner', ARGV[5 + i], 'owner_until', now + ARGV[3], 'takeovers', num_ended)
    redis.call('ZADD', KEYS[1], now + ARGV[3], battle_id)
    claims[#claims + 1] = {battle_id, ARGV[5 + i], first, is_last and '1' or '', redis.call('HGETALL', key)}
  end
end
return {now, claims}
