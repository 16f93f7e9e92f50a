-- abandon: ARGV[1] owner, fence. 1 abandoned, 0 fenced.
local owner, fence = struct.unpack('>c16I8', ARGV[1])
local r, wrong = read()
if wrong then
  return wrong
end
if not is_held_by(r, owner, fence) or is_expired(r) or r.state == COMPLETED or r.state == RELEASED then
  return 0
end
if r.state == IN_FLIGHT then
  lapse(r)
  r.at = math.min(now, r.at)
  write(r)
  wake()
end
return 1
