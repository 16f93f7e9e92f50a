-- release: ARGV[1] owner, fence, whether to keep the fingerprint. 1 released, 0 fenced.
local owner, fence, keep = struct.unpack('>c16I8B', ARGV[1])
local r, wrong = read()
if wrong then
  return wrong
end
-- A lease that has passed may have been acted upon: only a live owner can say that nothing happened.
if not is_live(r, owner, fence) then
  return 0
end
if keep == 0 then
  r.fingerprint = ''
end
r.state, r.at, r.expires = RELEASED, 0, later(r.retention)
write(r)
wake()
return 1
