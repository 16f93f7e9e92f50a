-- For the store suite only: leases and retention go by the time that the suite sends last; fences by the server's.
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = tonumber(ARGV[#ARGV])
