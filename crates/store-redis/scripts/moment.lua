-- The server's own time: milliseconds for leases and retention, microseconds for fences.
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
