-- KEYS: trail of a conversation. Returns its entries, oldest first.
return redis.call('LRANGE', KEYS[1], 0, -1)
