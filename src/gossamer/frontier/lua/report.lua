-- Take in what workers report, in order: starts, releases, settlements. Returns how many came too late.
local stale = 0

-- What a finished fetch means for the pace of its group.
local function rest(group, pace, op)
  if op.floor > me.delay then
    local count, longest = 0, 0
    for _, floor in pairs(pace.floors) do
      count, longest = count + 1, math.max(longest, floor)
    end
    if count >= 1000 then
      pace.floors = { [''] = longest }
    end
    pace.floors[op.origin] = op.floor
  else
    pace.floors[op.origin] = nil
  end
  if op.delay then
    pace.delay = op.delay
    for _, floor in pairs(pace.floors) do
      pace.delay = math.max(pace.delay, floor)
    end
  end
  if op.slow then
    group.slow = op.slow
  end
  group.till = math.max(group.till, op.till)
  if op.failed ~= 0 then
    group.fails = op.failed > 0 and group.fails + 1 or 0
    group.why = op.why
  end
end

local function release(token, lease, op)
  local group, pace = group_of(lease.group, true), pace_of(job, lease.group)
  group.busy = math.max(group.busy - 1, 0)
  if lease.starting then
    group.starting = math.max(group.starting - 1, 0)
  end
  -- The visit is over, and harmed nobody: whatever its worker dies of later is something else.
  lease.open, lease.starting, lease.begun = false, false, false
  if pace then
    rest(group, pace, op)
    pace_changed[job][lease.group] = true
    if op.at > 0 or op.delay then
      start(job, lease.group, op.at, op.stretch)
    end
  end
  touch(lease.group)
  if not op.back then
    call('HSET', key('x'), token, pack_lease(lease))
    return
  end
  local window, requests = forget(token, lease), key('r', job, lease.host)
  if window then
    window.taken = window.taken - 1
    local value = call('HGET', requests, lease.fp)
    call('HDEL', requests, lease.fp)
    place(lease.host, window, lease.fp, value, window_size())
  end
end

local function take(op)
  local token = exact(op.n)
  local lease = lease_at(token)
  local is_its_own = lease and lease.fp == op.fp and lease.job == job and lease.worker == me.worker
  if not is_its_own or (op.kind ~= 'settle' and not lease.open) then
    stale = stale + 1
  elseif op.kind == 'settle' then
    settle(token, lease, op.recorded, op.at, op.stretch)
  elseif op.kind == 'release' then
    release(token, lease, op)
  else
    if lease.starting then
      local group = group_of(lease.group, true)
      group.starting = math.max(group.starting - 1, 0)
      lease.starting, lease.begun = false, true
      call('HSET', key('x'), token, pack_lease(lease))
    end
    start(job, lease.group, op.at, op.stretch)
  end
end

call('ZADD', key('alive'), now, me.worker)
for _, op in ipairs(cmsgpack.unpack(ARGV[4])) do
  take(op)
end
finish()
return stale
