-- The requests of a run, for wrk: wrk … -s wrk.lua URL -- MODE NAME KEYS CALLER
--
-- MODE    plain: no key · fresh: a new key every time · replay: KEYS keys in turn · mixed: half fresh, a quarter each
--         of replays of recent keys and of requests without one
-- NAME    what the keys of this run begin with, 12 letters or digits: no two runs share one
-- CALLER  who asks: `token` sends one Authorization, `session` a cookie with one of CALLERS sessions in turn
--         (axum-idempotent needs one, and walks through all that a session has stored whenever it stores: this number
--         is kind to it)

local BODY = '{"amount":1999,"currency":"EUR","order":"A-1042","items":2}'
local FIRST = 100000000
local REST = "-7d1f0c9a2b3e4"
local RECENT = 1000
local CALLERS = 10000

local mode, name, keys
local plain, before, between, after
local count = 0

-- Written once, with gaps for the numbers: putting each request together from its fields would make wrk the slowest.
function init(args)
   mode, name, keys = args[1], args[2], tonumber(args[3])
   local head = "POST " .. wrk.path .. " HTTP/1.1\r\nHost: " .. wrk.headers["Host"]
      .. "\r\nContent-Type: application/json\r\nContent-Length: " .. #BODY
   if args[4] == "token" then
      head = head .. "\r\nAuthorization: Bearer 7c1e5b0a94d24f6f8e3a"
   end
   plain = head .. "\r\n\r\n" .. BODY
   before = head .. "\r\nIdempotency-Key: "
   after = "\r\n\r\n" .. BODY
   if args[4] == "session" then
      between, after = "\r\nCookie: session=", "A" .. after
   end
end

local function keyed(number)
   local id = name .. (FIRST + number)
   if between then
      return before .. id .. REST .. between .. name .. (FIRST + number % CALLERS) .. after
   end
   return before .. id .. REST .. after
end

function request()
   count = count + 1
   if mode == "fresh" then
      return keyed(count)
   elseif mode == "replay" then
      return keyed(count % keys)
   elseif mode == "plain" then
      return plain
   end
   local turn = count % 4
   if turn < 2 then
      return keyed(count)
   elseif turn == 2 and count > RECENT + 2 then
      return keyed(count - RECENT - 2)
   end
   return plain
end

function done(summary, latency, requests)
   local errors = summary.errors
   io.write(string.format("figures %d %d %d %d %d %d %d %d %d\n", summary.requests, summary.duration,
      latency:percentile(50), latency:percentile(99), errors.connect, errors.read, errors.write, errors.timeout,
      errors.status))
end
