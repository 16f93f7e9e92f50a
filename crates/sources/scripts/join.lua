-- Removes consumers that ended long ago and left nothing behind. Their names are never used again.
-- KEYS: stream. ARGV: group, how their names begin, idle time in ms. Gives how many there were.
local stream, group, prefix = KEYS[1], ARGV[1], ARGV[2]
local count = 0
for _, facts in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local consumer = {}
  for at = 1, #facts, 2 do
    consumer[facts[at]] = facts[at + 1]
  end
  local is_old = consumer.idle > tonumber(ARGV[3])
  if consumer.pending == 0 and is_old and string.sub(consumer.name, 1, #prefix) == prefix then
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer.name)
    count = count + 1
  end
end
return count
