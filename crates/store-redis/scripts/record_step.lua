-- record_step: ARGV[1] owner, fence, the most steps, the most bytes of all values · ARGV[2] name · ARGV[3] the step
local RECORDED, ALREADY, ERASED, FULL, FENCED = 1, 2, 3, 4, 5
local GONE = 4294967295
local owner, fence, steps_max, bytes_max = struct.unpack('>c16I8I2I4', ARGV[1])
local r, wrong = read()
if wrong then
  return wrong
end
if not is_live(r, owner, fence) then
  return FENCED
end
local steps = steps_of(r)
local at, count, bytes = 1, 0, 0
while at <= #steps do
  local name_bytes = string.byte(steps, at)
  local name = string.sub(steps, at + 1, at + name_bytes)
  local value_bytes = struct.unpack('>I4', steps, at + 5 + name_bytes)
  local next_at = at + 9 + name_bytes
  if value_bytes ~= GONE then
    next_at = next_at + 4 + value_bytes
    bytes = bytes + value_bytes
  end
  if name == ARGV[2] then
    if value_bytes == GONE then
      return ERASED
    end
    return { ALREADY, string.sub(steps, at, next_at - 1) }
  end
  at, count = next_at, count + 1
end
local value_bytes = #ARGV[3] - #ARGV[2] - 13
if count >= steps_max or bytes + value_bytes > bytes_max then
  return FULL
end
write(r, tail_of(steps .. ARGV[3], '', ''))
return RECORDED
