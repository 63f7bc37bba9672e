-- Replaces the vote log by the one that was built from it, if nothing but appends has happened to it meanwhile.
-- KEYS: vote log, log that was built, last restoration
-- ARGV: length, last id ('0-0' when empty) and token of the last restoration, as they were when the log was read; length of
--       the log that was built; token of this restoration; number of votes that it brings back; last id that was built
-- Returns 'ok', or 'changed' when everything must be read again.
if (redis.call('HGET', KEYS[3], 'token') or '') ~= ARGV[3] then return 'changed' end
if redis.call('XLEN', KEYS[2]) ~= tonumber(ARGV[4]) then return 'changed' end
local added = redis.call('XRANGE', KEYS[1], '(' .. ARGV[2], '+')
if redis.call('XLEN', KEYS[1]) - #added ~= tonumber(ARGV[1]) then return 'changed' end
-- Entries appended since the log was read have greater ids than every entry of the log, not always than those brought back.
if added[1] then
  local first, built = {string.match(added[1][1], '(%d+)-(%d+)')}, {string.match(ARGV[7], '(%d+)-(%d+)')}
  for i = 1, 2 do first[i], built[i] = tonumber(first[i]), tonumber(built[i]) end
  if first[1] < built[1] or (first[1] == built[1] and first[2] <= built[2]) then return 'changed' end
end
for _, entry in ipairs(added) do redis.call('XADD', KEYS[2], entry[1], unpack(entry[2])) end
redis.call('PERSIST', KEYS[2])
redis.call('RENAME', KEYS[2], KEYS[1])
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
redis.call('HSET', KEYS[3], 'token', ARGV[5], 'time', now, 'votes', ARGV[6])
return 'ok'
