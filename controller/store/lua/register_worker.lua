-- Registers a worker, or renews the registration of one that sends the same boot id again.
-- KEYS: workers, worker, epoch, models
-- ARGV: worker id, boot id, url, model, card, capacity, state, lifetime of the registration in ms
-- Returns the epoch as a string.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('HMGET', KEYS[2], 'boot_id', 'epoch')
local epoch = known[2]
if known[1] ~= ARGV[2] then
  -- Never below the clock, so that epochs grow even when the store has lost its data.
  local last = tonumber(redis.call('GET', KEYS[3]) or '0')
  epoch = string.format('%.0f', math.max(last + 1, now))
  redis.call('SET', KEYS[3], epoch)
  redis.call('DEL', KEYS[2])
end
redis.call('HSET', KEYS[2], 'boot_id', ARGV[2], 'epoch', epoch, 'url', ARGV[3], 'model', ARGV[4], 'card', ARGV[5],
  'capacity', ARGV[6], 'state', ARGV[7], 'lifetime', ARGV[8])
redis.call('HSETNX', KEYS[2], 'load', '{}')
redis.call('PEXPIRE', KEYS[2], ARGV[8])
redis.call('ZADD', KEYS[1], now + ARGV[8], ARGV[1])
if redis.call('HGET', KEYS[4], ARGV[4]) ~= ARGV[5] then
  redis.call('HSET', KEYS[4], ARGV[4], ARGV[5])
end
return epoch
