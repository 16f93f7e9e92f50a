-- renew: ARGV[1] owner, fence, lease. Answers what is left of the lease, or 0 for a lost grant.
local owner, fence, lease = struct.unpack('>c16I8I6', ARGV[1])
local r, wrong = read()
if wrong then
  return wrong
end
if not is_live(r, owner, fence) or now >= r.run_until then
  return 0
end
-- Extended, never shortened: renewals may arrive in another order than they were sent.
local at = math.min(r.run_until, math.max(r.at, later(lease)))
if at ~= r.at then
  r.at = at
  write(r)
end
return at - now
