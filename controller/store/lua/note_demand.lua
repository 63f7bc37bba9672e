-- Notes that one kind of work is refused at some workers.
-- KEYS: the demand of each worker for this kind
-- ARGV: demand ms
-- Returns 'ok'.
for _, demand in ipairs(KEYS) do
  redis.call('SET', demand, '1', 'PX', ARGV[1])
end
return 'ok'
