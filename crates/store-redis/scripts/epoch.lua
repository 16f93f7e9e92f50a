-- The epoch of a master: a mark that is gone when its memory is. KEYS[1] holds the mark, until when no new grant may
-- be made, and how far fences run ahead of the server's time.
-- ARGV[1] the mark as it was known, or nothing · ARGV[2] a new mark, should there be none · ARGV[3] how long to
-- quarantine (ms), whether something was lost, the least that fences run ahead (µs), the highest fence source known
local FORM = '>c16I8I8'
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
local quarantine, is_lost, ahead_min, source = struct.unpack('>I8BI8I8', ARGV[3])

local value = redis.call('GET', KEYS[1])
local mark, until_then, ahead = ARGV[2], 0, 0
if value then
  if #value ~= 32 then
    return -1
  end
  mark, until_then, ahead = struct.unpack(FORM, value)
end
if is_lost == 1 or (ARGV[1] ~= '' and ARGV[1] ~= mark) then
  until_then = math.max(until_then, now + quarantine)
end
-- A clock that was set back must not let fences go down.
ahead = math.max(ahead, ahead_min, source - micros)
local after = struct.pack(FORM, mark, until_then, ahead)
if after ~= value then
  redis.call('SET', KEYS[1], after)
end
return { 1, mark, math.max(until_then - now, 0), ahead, micros }
