-- Adds failures to those of one hour.
-- KEYS: failures of the hour
-- ARGV: ttl ms, most kinds of failure in one hour, then for each kind: its JSON, count, Unix time of the latest
-- Kinds beyond the limit are not counted. Returns nothing.
for i = 3, #ARGV, 3 do
  local known = redis.call('HGET', KEYS[1], ARGV[i])
  if known or redis.call('HLEN', KEYS[1]) < tonumber(ARGV[2]) then
    local before = known and cjson.decode(known) or {0, 0}
    local latest = math.max(before[2], tonumber(ARGV[i + 2]))
    redis.call('HSET', KEYS[1], ARGV[i], cjson.encode({before[1] + tonumber(ARGV[i + 1]), latest}))
  end
end
redis.call('PEXPIRE', KEYS[1], ARGV[1])
