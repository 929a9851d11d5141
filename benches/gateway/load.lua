-- POST /generate with bodies that differ, from 512 sessions; prints one line of JSON at the end.
-- Arguments: bytes of a body, and "stream" for event streams.
local size, mode = 2048, ""
local bodies, headers = {}, {}
local at = 0

function init(arguments)
  size = tonumber(arguments[1]) or size
  mode = arguments[2] or ""
  math.randomseed(17)
  local count = size > 16384 and 48 or 256
  for body = 1, count do
    local ids, length = {}, 0
    while length < size - 100 do
      local id = tostring(math.random(1000, 150000))
      ids[#ids + 1] = id
      length = length + #id + 1
    end
    local stream = mode == "stream" and '"stream":true,' or ""
    bodies[body] = '{' .. stream .. '"sampling_params":{"max_new_tokens":64},"input_ids":[' .. table.concat(ids, ",") .. ']}'
  end
  for session = 1, 512 do
    local key = "trajectory-" .. session
    -- Each router finds the session under the name that it knows.
    headers[session] = { ["Content-Type"] = "application/json", ["X-Session-ID"] = key, ["X-SMG-Routing-Key"] = key }
  end
end

function request()
  at = at + 1
  return wrk.format("POST", "/generate", headers[at % #headers + 1], bodies[at % #bodies + 1])
end

function done(summary, latency)
  local errors = summary.errors
  io.write(string.format(
    '{"requests":%d,"seconds":%.6f,"p50_ms":%.4f,"p99_ms":%.4f,"status_errors":%d,"socket_errors":%d}\n',
    summary.requests, summary.duration / 1e6, latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,
    errors.status, errors.connect + errors.read + errors.write + errors.timeout))
end
