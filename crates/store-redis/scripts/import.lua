-- import: ARGV[1] state and expiry · ARGV[2] head without its check · ARGV[3] tail. 1 taken, 0 left.
local state, expires = struct.unpack('>BI6', ARGV[1])
local r, wrong = read()
if wrong then
  return wrong
end
if (r and not is_expired(r)) or (state ~= IN_FLIGHT and now >= expires) then
  return 0
end
local value = ARGV[2] .. check(ARGV[2]) .. ARGV[3]
if state == COMPLETED or state == RELEASED then
  redis.call('SET', KEYS[1], value, 'PX', expires - now + MARGIN)
else
  redis.call('SET', KEYS[1], value)
end
wake()
return 1
