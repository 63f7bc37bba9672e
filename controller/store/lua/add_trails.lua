-- Appends steps to the trails of conversations.
-- KEYS: trails
-- ARGV: ttl ms, most entries of one trail, then for each key: number of entries, the entries
-- Returns nothing.
local at = 3
for i = 1, #KEYS do
  local last = at + tonumber(ARGV[at])
  for j = at + 1, last do redis.call('RPUSH', KEYS[i], ARGV[j]) end
  redis.call('LTRIM', KEYS[i], -tonumber(ARGV[2]), -1)
  redis.call('PEXPIRE', KEYS[i], ARGV[1])
  at = last + 1
end
