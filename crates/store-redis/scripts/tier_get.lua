-- What is known, and for how long. A zero byte is nothing.
local known = redis.call('GET', KEYS[1])
if not known or string.byte(known) == 0 then return false end
local left = redis.call('PTTL', KEYS[1])
-- Not of ours: what we put has an expiry.
if left < 0 then return false end
return {known, left}
