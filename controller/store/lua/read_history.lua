-- Reads the newest battles of a voter, and removes from the history those that the store has forgotten.
-- KEYS: history
-- ARGV: prefix of the keys of battles, most battles
-- Returns {now, then id and fields as a flat list of each battle, newest first}.
local time = redis.call('TIME')
local found = {time[1] * 1000 + math.floor(time[2] / 1000)}
for _, id in ipairs(redis.call('ZREVRANGE', KEYS[1], 0, ARGV[2] - 1)) do
  local fields = redis.call('HGETALL', ARGV[1] .. id)
  if #fields == 0 then
    redis.call('ZREM', KEYS[1], id)
  else
    found[#found + 1] = id
    found[#found + 1] = fields
  end
end
return found
