-- claim: ARGV[1] how a record begins, its retentions, terms, fence source, quarantine, more terms, whether to touch
-- · ARGV[2] fingerprint · ARGV[3] what a sealed record answers
local GRANTED, REPLAY, BUSY, HELD, MISMATCH, RECOVER, FENCED, QUARANTINED = 1, 2, 3, 4, 5, 6, 7, 8
local HOLD_POLICY, SEAL_POLICY, QUERY_POLICY, RERUN_POLICY = 0, 1, 2, 3
local _, remote, _, owner, retention, unknown_retention, lease, run_max, fence_ahead, is_quarantined, policy,
  attempts_max, hold_for, is_touched = struct.unpack('>c3BI2c16I6I6I6I6I8BBI4I6B', ARGV[1])

local stored, wrong = read(stored_value)
if wrong then
  return wrong
end

local function grant(seen, last)
  local fence = math.max(last + 1, micros + fence_ahead)
  if fence >= 9007199254740992 then
    return { HELD, last, 0 }
  end
  if is_quarantined == 1 then
    return { QUARANTINED }
  end
  local r = { state = IN_FLIGHT, by = 0, remote = remote, fingerprint = ARGV[2], recovery = '', owner = owner,
    fence = fence, attempt = 1, created = now, granted = now, run_until = later(run_max), retention = retention,
    unknown_retention = unknown_retention, expires = 0 }
  r.at = math.min(r.run_until, later(lease))
  if not seen then
    write(r, '')
    return fence
  end
  r.attempt = math.min(seen.attempt + 1, 4294967295)
  r.created = seen.created
  -- Steps belong to one request: when the fingerprint was forgotten, so is what that request recorded.
  local steps = ''
  if seen.fingerprint ~= '' then
    steps = steps_of(seen)
  end
  write(r, tail_of(steps, '', ''))
  return { GRANTED, fence, r.attempt, steps }
end

-- An owner is for one attempt: a claim that arrives again after its grant was lost starts nothing.
local function grant_again(seen)
  if seen.owner == owner then
    return { FENCED }
  end
  return grant(seen, seen.fence)
end

local function seal(seen)
  -- Sealing must not shorten how long an unknown outcome protects its key.
  seen.expires = math.max(later(seen.retention), seen.expires)
  seen.state, seen.by, seen.recovery, seen.at, seen.lapsed = COMPLETED, SEAL, '', now, false
  local value = write(seen, tail_of(steps_of(seen), ARGV[3], ''))
  wake()
  return { REPLAY, now, value }
end

local function recover(seen)
  return { RECOVER, seen.fence, seen.attempt, math.max(seen.run_until - now, 0), steps_of(seen) }
end

local function unknown(seen)
  if seen.recovery ~= '' then
    local recoverer, until_then = struct.unpack('>c16I6', seen.recovery)
    if now < until_then then
      -- While someone finds out, nothing may start, whatever the policy of this claim.
      if recoverer == owner then
        touch(is_touched)
        return recover(seen)
      end
      return { BUSY, until_then - now }
    end
  end
  if policy == SEAL_POLICY then
    return seal(seen)
  end
  if policy == QUERY_POLICY then
    seen.by, seen.recovery, seen.lapsed = 1, struct.pack('>c16I6', owner, later(lease)), false
    write(seen)
    return recover(seen)
  end
  if policy == RERUN_POLICY and seen.attempt < attempts_max then
    return grant_again(seen)
  end
  if now >= seen.at + hold_for then
    return seal(seen)
  end
  -- A clock that was set back is behind what it said.
  return { HELD, seen.fence, math.max(now - seen.at, 0) }
end

local seen = view(stored)
if not seen then
  return grant(nil, stored and stored.fence or 0)
end
if seen.fingerprint ~= '' and seen.fingerprint ~= ARGV[2] then
  return { MISMATCH, seen.fingerprint }
end
if seen.state == IN_FLIGHT then
  if seen.owner == owner then
    touch(is_touched)
    return { GRANTED, seen.fence, seen.attempt, steps_of(seen) }
  end
  return { BUSY, seen.at - now }
end
if seen.state == COMPLETED then
  touch(is_touched)
  return { REPLAY, now, seen.value }
end
if seen.state == RELEASED then
  return grant_again(seen)
end
local answer = unknown(seen)
-- A passed lease becomes unknown in the same step, unless the policy wrote something else already.
if seen.lapsed and type(answer) == 'table' and (answer[1] == HELD or answer[1] == FENCED) then
  write(seen)
  wake()
end
return answer
