-- Names the format in which this controller keeps the store, unless a newer one is named.
-- KEYS: format
-- ARGV: number of the format, stamp (JSON with that number)
-- Returns the stamp that the store has now.
local found = redis.call('GET', KEYS[1])
if found then
  local is_json, kept = pcall(cjson.decode, found)
  if is_json and type(kept) == 'table' and tonumber(kept.format or 0) > tonumber(ARGV[1]) then return found end
  if found == ARGV[2] then return found end
end
redis.call('SET', KEYS[1], ARGV[2])
return ARGV[2]
