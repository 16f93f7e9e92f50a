-- The server's time in ms, and what is known and for how long. A zero byte is nothing, and so is what never expires: it
-- is not of ours.
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local known = redis.call('GET', KEYS[1])
local left = known and redis.call('PTTL', KEYS[1]) or 0
if not known or left < 0 or string.byte(known) == 0 then return {now, false, 0} end
return {now, known, left}
