-- Deletes a chat with its events. A turn that runs loses its owner with it.
-- KEYS: chat, events, running chats, chats of the visitor
-- ARGV: chat id
-- Returns 'ok'.
redis.call('DEL', KEYS[1], KEYS[2])
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('ZREM', KEYS[4], ARGV[1])
return 'ok'
