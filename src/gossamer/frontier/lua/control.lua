-- What an operator decides: `control` pauses, stops or resumes a job, `switch` turns a host off or on for all jobs,
-- `delay` sets the least delay of a host for all jobs, and `forget` takes a part of a job off the schedule.
-- `clear` empties windows of a job. Returns how many hosts of the job are left to forget, or were taken off; to `held`, what of all this is in force.
local what, name, value = unpack(cmsgpack.unpack(ARGV[4]))
if what == 'held' then
  return { call('GET', key('control', name)) or '', call('SMEMBERS', key('off')), call('HGETALL', key('delays')) }
end

local function every_job(change)
  for _, owner in ipairs(call('HKEYS', key('rules'))) do
    local window = window_of(owner, name)
    if window then
      change(owner, window)
      touch(window.group)
    end
  end
end

-- Let a window have nothing but what is leased: the ledger fills it anew. Without a lease it is taken off.
local function clear(owner, host, window)
  if window.leased == 0 then
    drop(owner, host, window)
    return 1
  end
  local queue, later, requests = key('q', owner, host), key('l', owner, host), key('r', owner, host)
  for _, member in ipairs(call('ZRANGE', queue, 0, -1)) do
    call('HDEL', requests, string.sub(member, 9))
  end
  for _, fingerprint in ipairs(call('ZRANGE', later, 0, -1)) do
    call('HDEL', requests, fingerprint)
  end
  call('DEL', queue, later)
  call('ZADD', key('hungry', owner), now, host)
  unlist(owner, host, window)
  count_queued(owner, -window.queued - window.waits)
  window.queued, window.waits, window.refill, window.exhausted, window.floor = 0, 0, 0, false, false
  window_changed[owner][host] = true
  touch(window.group)
  return 0
end

if what == 'control' then
  if value == '' then
    call('DEL', key('control', name))
  else
    call('SET', key('control', name), value)
  end
elseif what == 'switch' then
  local is_new = call(value and 'SREM' or 'SADD', key('off'), name) == 1
  every_job(function(owner, window)
    -- What a window has of a host that was off is held in the ledger, or was.
    if is_new and value then
      clear(owner, name, window)
    end
  end)
elseif what == 'delay' then
  call('HSET', key('delays'), name, exact(value))
  every_job(function(owner, window)
    local group, pace = group_of(window.group, true), pace_of(owner, window.group)
    pace.floors['=' .. name] = value > rules_of(owner).delay and value or nil
    pace.delay = math.max(pace.delay, value)
    pace.due = math.max(pace.due, group.last + pace.delay)
    pace_changed[owner][window.group] = true
  end)
elseif what == 'clear' then
  local dropped = 0
  for _, host in ipairs(call('HRANDFIELD', key('w', job), me.most)) do
    dropped = dropped + clear(job, host, window_of(job, host))
  end
  finish()
  return dropped
elseif what == 'forget' then
  for _, host in ipairs(call('HRANDFIELD', key('w', job), me.most)) do
    drop(job, host, window_of(job, host))
  end
  if call('HLEN', key('w', job)) == 0 then
    for _, kind in ipairs({ 'hungry', 'idle', 'stuck', 'ready', 'crowd', 'control', 'workers' }) do
      call('DEL', key(kind, job))
    end
    call('HDEL', key('rules'), job)
    if tonumber(call('HGET', key('c', job), 'leased') or 0) <= 0 then
      call('DEL', key('c', job))
      queued_more = 0
    end
  end
end
finish()
return call('HLEN', key('w', job))
