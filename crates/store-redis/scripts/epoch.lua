-- The epoch of a master: a mark that is gone when its memory is. KEYS[1] holds the mark, until when no new grant may
-- be made, how far fences run ahead of the server's time, and the longest lease that was ever used.
-- ARGV[1] the mark as it was known, or nothing · ARGV[2] a new mark, should there be none · ARGV[3] how long to
-- quarantine (ms), whether something was lost, what is left of a quarantine that stood elsewhere (ms), the least that
-- fences run ahead (µs), the highest fence source known, the longest lease known (ms)
local FORM = '>c16I8I8I8'
local clock = redis.call('TIME')
local micros = clock[1] * 1000000 + clock[2]
local now = math.floor(micros / 1000)
local quarantine, is_lost, left, ahead_min, source, lease = struct.unpack('>I8BI8I8I8I8', ARGV[3])

local value = redis.call('GET', KEYS[1])
local mark, until_then, ahead, longest = ARGV[2], 0, 0, 0
if value then
  -- The first version had no lease.
  local whole = #value == 32 and value .. string.rep('\0', 8) or value
  if #whole ~= 40 then
    return -1
  end
  mark, until_then, ahead, longest = struct.unpack(FORM, whole)
end
longest = math.max(longest, lease)
if left > 0 then
  until_then = math.max(until_then, now + left)
end
if is_lost == 1 or (ARGV[1] ~= '' and ARGV[1] ~= mark) then
  until_then = math.max(until_then, now + math.max(quarantine, longest))
end
-- A clock that was set back, or is behind that of another master, must not let fences go down.
ahead = math.max(ahead, ahead_min, source - micros)
local after = struct.pack(FORM, mark, until_then, ahead, longest)
if after ~= value then
  redis.call('SET', KEYS[1], after)
end
return { 1, mark, math.max(until_then - now, 0), ahead, micros, longest }
