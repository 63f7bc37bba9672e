-- Takes one slot at each worker, or none at all. KEYS: the workers' slots. ARGV: lease ms, grace ms, then lease id and
-- limit for each key. Returns 0, or the number of the first key that is full.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, #KEYS do
  local lease_id, limit = ARGV[2 * i + 1], tonumber(ARGV[2 * i + 2])
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now)
  if redis.call('ZCARD', KEYS[i]) >= limit then
    for j = 1, i - 1 do
      redis.call('ZREM', KEYS[j], ARGV[2 * j + 1])
    end
    return i
  end
  redis.call('ZADD', KEYS[i], now + ARGV[1], lease_id)
  redis.call('PEXPIRE', KEYS[i], ARGV[1] + ARGV[2])
end
return 0
