-- Since 7.2, `WAIT` knows only of what its own connection wrote. An answer about what another one wrote is
-- acknowledged by writing a byte that is there already.
local function touch(is_wanted)
  if is_wanted == 1 then
    redis.call('SETRANGE', KEYS[1], 0, '\1')
  end
end
