-- Whose turn it is to sweep. KEYS[1] when the next pass may begin · ARGV[1] for how long it keeps others away (ms); 0: it
-- keeps nobody away, and nobody it
local clock = redis.call('TIME')
local now = clock[1] * 1000 + math.floor(clock[2] / 1000)
local next_at = tonumber(redis.call('GET', KEYS[1]) or 0)
local wait = tonumber(ARGV[1])
if ARGV[2] == 'begin' and wait > 0 and now < next_at then
  return 0
end
if wait > 0 then
  redis.call('SET', KEYS[1], now + wait, 'PX', wait)
end
return 1
