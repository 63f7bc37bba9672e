-- Reads single entries of the vote log.
-- KEYS: vote log
-- ARGV: ids
-- Returns the entries that are there as {id, fields}, in the order of the ids.
local found = {}
for _, id in ipairs(ARGV) do
  local entries = redis.call('XRANGE', KEYS[1], id, id)
  if entries[1] then found[#found + 1] = entries[1] end
end
return found
