-- needs: gcra
-- Reserves one capacity lease at each worker, or none at all.
-- KEYS: the leases of each worker, then optionally a bucket of the rate limits
-- ARGV: lease ms, grace ms, number of leases, then lease id and limit for each, then for the bucket microseconds per
--       request and burst
-- Returns 0, the number (from 1) of the first worker that is full, or minus the microseconds to wait.
local num_leases = tonumber(ARGV[3])
if #KEYS > num_leases then
  local wait = gcra(KEYS[#KEYS], ARGV[#ARGV - 1], ARGV[#ARGV])
  if wait > 0 then return -wait end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 1, num_leases do
  local lease_id, limit = ARGV[2 * i + 2], tonumber(ARGV[2 * i + 3])
  redis.call('ZREMRANGEBYSCORE', KEYS[i], '-inf', now)
  if redis.call('ZCARD', KEYS[i]) >= limit then
    for j = 1, i - 1 do
      redis.call('ZREM', KEYS[j], ARGV[2 * j + 2])
    end
    return i
  end
  redis.call('ZADD', KEYS[i], now + ARGV[1], lease_id)
  redis.call('PEXPIRE', KEYS[i], ARGV[1] + ARGV[2])
end
return 0
