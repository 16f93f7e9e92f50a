-- Gives back everything that this consumer has not settled: others find it idle for long enough at once.
-- KEYS: stream. ARGV: group, consumer, idle time in ms. Gives how many entries there were.
-- A consumer with pending entries must not be deleted: they would go with it.
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local after, count = '-', 0
while true do
  local pending = redis.call('XPENDING', stream, group, after, '+', 1000, consumer)
  for _, entry in ipairs(pending) do
    redis.call('XCLAIM', stream, group, consumer, 0, entry[1], 'IDLE', ARGV[3], 'JUSTID')
    after = '(' .. entry[1]
    count = count + 1
  end
  if #pending < 1000 then
    break
  end
end
if count == 0 then
  redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
end
return count
