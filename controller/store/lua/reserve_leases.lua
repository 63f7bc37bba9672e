-- needs: gcra
-- Reserves one capacity lease at each worker, or none at all.
-- Battles and chats share the workers. As long as the other kind is refused at a worker too, a kind gets no more than
-- half of its places: a lease of a battle needs places at two workers at once and would hardly ever find them otherwise.
-- KEYS: for each worker its leases, its demand for this kind and its demand for the other kind; then optionally a bucket
--       of the rate limits
-- ARGV: lease ms, grace ms, demand ms, kind, number of leases, then lease id (it begins with the kind) and limit for
--       each, then for the bucket microseconds per request and burst
-- Returns 0, the number (from 1) of the first worker that is full, or minus the microseconds to wait; then the
-- microseconds until the bucket is empty, 0 without one.
local kind, num_leases, filled = ARGV[4], tonumber(ARGV[5]), 0
if #KEYS > 3 * num_leases then
  local wait
  wait, filled = gcra(KEYS[#KEYS], ARGV[#ARGV - 1], ARGV[#ARGV])
  if wait > 0 then return {-wait, filled} end
end
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

local function is_full(leases, other_demand, limit)
  redis.call('ZREMRANGEBYSCORE', leases, '-inf', now)
  redis.call('ZREMRANGEBYSCORE', leases, now + 2 * ARGV[1], '+inf')  -- from before the clock was set back
  if redis.call('ZCARD', leases) >= limit then return true end
  if redis.call('EXISTS', other_demand) == 0 then return false end
  local own = 0
  for _, lease_id in ipairs(redis.call('ZRANGE', leases, 0, -1)) do
    if string.sub(lease_id, 1, #kind) == kind then own = own + 1 end
  end
  return own >= math.max(1, math.floor(limit / 2))
end

for i = 1, num_leases do
  local leases, lease_id, limit = KEYS[3 * i - 2], ARGV[2 * i + 4], tonumber(ARGV[2 * i + 5])
  if is_full(leases, KEYS[3 * i], limit) then
    for j = 1, i - 1 do
      redis.call('ZREM', KEYS[3 * j - 2], ARGV[2 * j + 4])
    end
    for j = 1, num_leases do
      redis.call('SET', KEYS[3 * j - 1], '1', 'PX', ARGV[3])
    end
    return {i, filled}
  end
  redis.call('ZADD', leases, now + ARGV[1], lease_id)
  redis.call('PEXPIRE', leases, ARGV[1] + ARGV[2])
end
return {0, filled}
