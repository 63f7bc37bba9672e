-- Appends records of another arena's log, except votes on battles, and others with keys, that the log has already.
-- KEYS: vote log, battles and keys of other records in the log
-- ARGV: for each entry battle id or key, record json, time ms
-- Returns the number of entries appended.
-- If the log is older than the set of its battles, fill the set first, in pieces, so that no reply becomes large.
if redis.call('SCARD', KEYS[2]) < redis.call('XLEN', KEYS[1]) then
  local after = '-'
  while after do
    local entries = redis.call('XRANGE', KEYS[1], after, '+', 'COUNT', 1000)
    for _, entry in ipairs(entries) do
      local is_readable, vote = pcall(cjson.decode, entry[2][2])
      if is_readable then redis.call('SADD', KEYS[2], vote.key or vote.battle_id) end
    end
    after = #entries == 1000 and '(' .. entries[1000][1]
  end
end
local imported = 0
for i = 1, #ARGV, 3 do
  if redis.call('SADD', KEYS[2], ARGV[i]) == 1 then
    redis.call('XADD', KEYS[1], '*', 'record', ARGV[i + 1], 'time', ARGV[i + 2])
    imported = imported + 1
  end
end
return imported
