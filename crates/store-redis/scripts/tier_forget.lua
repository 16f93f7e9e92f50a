-- Forgets, but not that nothing may be put here.
if redis.call('GETRANGE', KEYS[1], 0, 0) == '\0' then return 0 end
return redis.call('DEL', KEYS[1])
