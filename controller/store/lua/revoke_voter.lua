-- Revokes the invitation of a voter; it stays in the list, and the name may be invited again.
-- KEYS: invitations, names of invited voters
-- ARGV: name
-- Returns the id and the JSON of the invitation; nothing where none holds for this name.
local known = redis.call('HGET', KEYS[2], ARGV[1])
if not known then return {} end
redis.call('HDEL', KEYS[2], ARGV[1])
local text = redis.call('HGET', KEYS[1], known)
if not text then return {} end
local invitation = cjson.decode(text)
invitation.revoked = tonumber(redis.call('TIME')[1])
text = cjson.encode(invitation)
redis.call('HSET', KEYS[1], known, text)
return {known, text}
