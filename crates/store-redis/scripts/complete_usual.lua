-- The usual completion first, of what is in flight without steps: only the state and its times change.
local stored_value = redis.call('GET', KEYS[1])
if stored_value and #stored_value >= 84 then
  local version, state, _, _, high, low = string.byte(stored_value, 1, 6)
  local head_end = 76 + high * 256 + low
  if version == 1 and state == 0 and #stored_value == head_end + 8
    and string.sub(stored_value, 7, 30) == string.sub(ARGV[1], 1, 24)
    and string.sub(stored_value, head_end + 1)
      == string.sub(redis.sha1hex(KEYS[1] .. string.sub(stored_value, 1, head_end)), 1, 8) then
    local retention = struct.unpack('>I6', ARGV[1], 25)
    if retention == 0 then
      retention = struct.unpack('>I6', stored_value, 53)
    end
    local expires = now + retention
    if expires > FOREVER then
      expires = FOREVER
    end
    local head = '\1\1\0' .. string.sub(stored_value, 4, 64) .. struct.pack('>I6I6', now, expires)
      .. string.sub(stored_value, 77, head_end)
    redis.call('SET', KEYS[1], head .. string.sub(redis.sha1hex(KEYS[1] .. head), 1, 8) .. ARGV[2], 'PX',
      expires - now + MARGIN)
    redis.pcall('PUBLISH', KEYS[1], '')
    return 1
  end
end
