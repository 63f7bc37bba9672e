-- Invites a voter, unless one of this name is invited already.
-- KEYS: invitations, names of invited voters
-- ARGV: id of the new invitation, name, cohort ('' = none)
-- Returns the id and the JSON of the invitation that holds for this name.
local known = redis.call('HGET', KEYS[2], ARGV[2])
if known then
  local text = redis.call('HGET', KEYS[1], known)
  if text then return {known, text} end
end
local invitation = {name = ARGV[2], created = tonumber(redis.call('TIME')[1])}
if ARGV[3] ~= '' then invitation.cohort = ARGV[3] end
local text = cjson.encode(invitation)
redis.call('HSET', KEYS[1], ARGV[1], text)
redis.call('HSET', KEYS[2], ARGV[2], ARGV[1])
return {ARGV[1], text}
