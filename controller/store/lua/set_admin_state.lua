-- Sets or removes one part of what an administrator has set, and logs the action, in one step.
-- KEYS: admin state, log of actions
-- ARGV: field ('' = none), value ('' = remove), JSON of the action
-- Returns the id of the action in its log.
if ARGV[1] ~= '' then
  if ARGV[2] == '' then
    redis.call('HDEL', KEYS[1], ARGV[1])
  else
    redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
  end
end
return redis.call('XADD', KEYS[2], '*', 'action', ARGV[3])
