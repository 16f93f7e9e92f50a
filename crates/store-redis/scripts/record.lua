-- A record as `codec.rs` describes it: reading, checking and writing. Every script about a record begins with this,
-- after `moment.lua`, `limits.lua` and its own usual case. KEYS[1] is the record's key, and also the channel on which
-- its changes are told.
local FORM = '>BBBBI2c16I8I4I6I6I6I6I6I6I6'
local FORM_BYTES, CHECK_BYTES, RECOVERY_BYTES = 76, 8, 22
local IN_FLIGHT, COMPLETED, RELEASED, UNKNOWN = 0, 1, 2, 3
local EXECUTION, SEAL, RESOLVE = 0, 1, 2
local DAMAGED, UNSUPPORTED = -1, -2

local function later(by)
  return math.min(now + by, FOREVER)
end

-- Covers the key and all that decides who may do what. The parts behind it carry checksums of their own.
local function check(head)
  return string.sub(redis.sha1hex(KEYS[1] .. head), 1, CHECK_BYTES)
end

-- The record in these bytes, or in what is stored; nothing when absent; nothing and a code when it cannot be read.
local function read(value)
  if value == nil then
    value = redis.call('GET', KEYS[1])
  end
  if not value then
    return nil
  end
  if string.byte(value) ~= 1 then
    return nil, UNSUPPORTED
  end
  if #value < FORM_BYTES + CHECK_BYTES then
    return nil, DAMAGED
  end
  local r = { value = value, recovery = '' }
  local fingerprint_bytes
  local _
  _, r.state, r.by, r.remote, fingerprint_bytes, r.owner, r.fence, r.attempt, r.created, r.granted, r.run_until,
    r.retention, r.unknown_retention, r.at, r.expires = struct.unpack(FORM, value)
  local head_end = FORM_BYTES + fingerprint_bytes
  r.fingerprint = string.sub(value, FORM_BYTES + 1, head_end)
  if r.state == UNKNOWN and r.by == 1 then
    r.recovery = string.sub(value, head_end + 1, head_end + RECOVERY_BYTES)
    head_end = head_end + RECOVERY_BYTES
  end
  if string.sub(value, head_end + 1, head_end + CHECK_BYTES) ~= check(string.sub(value, 1, head_end)) then
    return nil, DAMAGED
  end
  r.tail_at = head_end + CHECK_BYTES + 1
  return r
end

local function is_expired(r)
  return r.state ~= IN_FLIGHT and now >= r.expires
end

local function is_lapsed(r)
  return r.state == IN_FLIGHT and now >= r.at
end

-- A lease that has passed reads as unknown since then, kept from now on.
local function lapse(r)
  r.state, r.by, r.recovery = UNKNOWN, 0, ''
  r.expires = later(r.unknown_retention)
end

-- The record as every command but complete reads it: absent once expired, unknown once its lease has passed.
local function view(r)
  if not r or is_expired(r) then
    return nil
  end
  if is_lapsed(r) then
    lapse(r)
    r.lapsed = true
  end
  return r
end

local function is_held_by(r, owner, fence)
  return r and r.owner == owner and r.fence == fence
end

local function is_live(r, owner, fence)
  return is_held_by(r, owner, fence) and r.state == IN_FLIGHT and now < r.at
end

-- What follows the head: the steps, the outcome, and the outcome that came too late.
local function parts(r)
  if #r.value < r.tail_at then
    return '', '', ''
  end
  local steps_bytes = struct.unpack('>I4', r.value, r.tail_at)
  local outcome_at = r.tail_at + 4 + steps_bytes
  local outcome_bytes = struct.unpack('>I4', r.value, outcome_at)
  local late_at = outcome_at + 4 + outcome_bytes
  return string.sub(r.value, r.tail_at + 4, outcome_at - 1), string.sub(r.value, outcome_at + 4, late_at - 1),
    string.sub(r.value, late_at)
end

local function steps_of(r)
  local steps = parts(r)
  return steps
end

local function tail_of(steps, outcome, late)
  if steps == '' and outcome == '' then
    return ''
  end
  return struct.pack('>I4', #steps) .. steps .. struct.pack('>I4', #outcome) .. outcome .. late
end

-- Writes the record with this tail, or with the tail it had. Only what is over gets an expiry.
local function write(r, tail)
  local head = struct.pack(FORM, 1, r.state, r.by, r.remote, #r.fingerprint, r.owner, r.fence, r.attempt, r.created,
    r.granted, r.run_until, r.retention, r.unknown_retention, r.at, r.expires) .. r.fingerprint .. r.recovery
  local value = head .. check(head) .. (tail or string.sub(r.value, r.tail_at))
  if r.state == COMPLETED or r.state == RELEASED then
    redis.call('SET', KEYS[1], value, 'PX', r.expires - now + MARGIN)
  else
    redis.call('SET', KEYS[1], value)
  end
  return value
end

-- Who may not tell does not: the change stands, and those who wait look for themselves.
local function wake()
  redis.pcall('PUBLISH', KEYS[1], '')
end
