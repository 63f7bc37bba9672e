-- Reads every registered worker with its number of capacity leases, and every model that was ever registered.
-- KEYS: workers, models
-- ARGV: prefix of worker keys, prefix of lease keys
-- Returns {now, models as a flat list, rows}, a row being
--       {worker id, end of registration, number of leases, fields as a flat list}.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for _, worker_id in ipairs(redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', now)) do
  redis.call('ZREM', KEYS[1], worker_id)
end
local rows = {}
local live = redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES')
for i = 1, #live, 2 do
  local fields = redis.call('HGETALL', ARGV[1] .. live[i])
  if #fields > 0 then
    rows[#rows + 1] = {live[i], live[i + 1], redis.call('ZCOUNT', ARGV[2] .. live[i], '(' .. now, '+inf'), fields}
  end
end
return {now, redis.call('HGETALL', KEYS[2]), rows}
