-- resolve: ARGV[1] fence, verdict, force · ARGV[2] outcome
local RESOLVED, ALREADY, NOT_UNKNOWN, STALE, TOO_EARLY, CONTRADICTED, ABSENT = 1, 2, 3, 4, 5, 6, 7
local EXECUTED, NOT_EXECUTED, STILL_UNKNOWN = 0, 1, 2
local fence, verdict, force = struct.unpack('>I8BB', ARGV[1])
local r, wrong = read()
if wrong then
  return wrong
end
r = view(r)
if not r then
  return ABSENT
end
if r.fence ~= fence then
  return { STALE, r.fence }
end

local steps, outcome, late = parts(r)
local is_unknown = r.state == UNKNOWN
if r.state == COMPLETED then
  if r.by == RESOLVE and verdict == EXECUTED and outcome == ARGV[2] then
    return ALREADY
  end
  if r.by == SEAL and verdict == NOT_EXECUTED and force == 0 and late ~= '' then
    return CONTRADICTED
  end
  -- A sealed record only says that nobody knew, so it can still be resolved; any other answer stands.
  is_unknown = r.by == SEAL and verdict ~= STILL_UNKNOWN
end
if r.state == RELEASED and verdict == NOT_EXECUTED then
  return ALREADY
end
if not is_unknown then
  return { NOT_UNKNOWN, r.state }
end

if verdict == EXECUTED then
  r.state, r.by, r.recovery, r.at, r.expires = COMPLETED, RESOLVE, '', now, later(r.retention)
  write(r, tail_of(steps, ARGV[2], ''))
elseif verdict == NOT_EXECUTED then
  -- Final only when the attempt can no longer run: a slow one would act after we were told that it had not.
  if now < r.run_until and force == 0 then
    return { TOO_EARLY, r.run_until - now }
  end
  r.state, r.by, r.recovery, r.at, r.expires = RELEASED, 0, '', 0, later(r.retention)
  write(r, tail_of(steps, '', ''))
else
  r.by, r.recovery = 0, ''
  write(r)
end
wake()
return RESOLVED
