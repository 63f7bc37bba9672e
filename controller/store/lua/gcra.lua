-- A function for scripts whose first line is "-- needs: gcra": the generic cell rate algorithm. Takes a place in the
-- bucket. Returns 0, or the microseconds until there is one; then the microseconds until the bucket is empty.
local function gcra(bucket, interval_us, burst)
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local arrival = math.max(tonumber(redis.call('GET', bucket) or now), now)
  local full = now + interval_us * burst
  if arrival > full then  -- no bucket is fuller: it was written before the clock was set back
    arrival = full
    redis.call('SET', bucket, string.format('%.0f', arrival), 'PX', math.ceil((arrival - now) / 1000))
  end
  local taken = arrival + interval_us
  if taken > full then return math.ceil(taken - full), math.ceil(arrival - now) end
  redis.call('SET', bucket, string.format('%.0f', taken), 'PX', math.ceil((taken - now) / 1000))
  return 0, math.ceil(taken - now)
end
