-- What every script begins with. A script loads what it needs through the functions below, changes it, and calls
-- `finish` once, which writes back what was changed and gives every group it touched its place among the ready ones.
-- KEYS[1] is the base of all names, so every key lies in the slot of one partition. The keys are listed in
-- redis_scheduler.py. ARGV: the instant (empty for the server's own), a random number for a new epoch, who is asking
-- and by which bounds, and what the script is to do.
local base, call = KEYS[1], redis.call
local me = cmsgpack.unpack(ARGV[3])
local job = me.job
local now = tonumber(ARGV[1])
if not now then
  local time = call('TIME')
  now = tonumber(time[1]) + tonumber(time[2]) / 1000000
end

local MINUTE_MS = 60000
-- Groups that no worker has leased from yet fall into so many parts (redis_affinity.py).
local PARTS = 512

local function key(kind, owner, host)
  if host then
    return base .. ':' .. kind .. ':' .. owner .. ':' .. host
  elseif owner then
    return base .. ':' .. kind .. ':' .. owner
  end
  return base .. ':' .. kind
end

local function exact(number)
  return string.format('%.17g', number)
end

-- -- the epoch -------------------------------------------------------------------------------------------------

-- Numbers of leases, refills and places in the queue come from one counter that begins anywhere, so that a number
-- given out before a wipe means nothing after it.
local counter, epoch, epoch_at

local function new_epoch(run_id)
  counter = tonumber(ARGV[2]) * 4294967296
  epoch_at, epoch = now, table.concat({ ARGV[2], exact(now), run_id }, ' ')
  call('SET', key('epoch'), epoch)
  call('SET', key('n'), exact(counter))
end

local function run_id()
  return string.match(call('INFO', 'server'), 'run_id:(%x+)') or ''
end

local function began_at()
  if not epoch_at then
    epoch = call('GET', key('epoch'))
    if epoch then
      epoch_at = tonumber(string.match(epoch, '^%S+ (%S+)'))
    else
      new_epoch(run_id())
    end
  end
  return epoch_at
end

-- What tells this epoch from all others.
local function epoch_name()
  began_at()
  return epoch
end

local function number()
  if not counter then
    began_at()
    counter = counter or tonumber(call('GET', key('n')))
  end
  counter = counter + 1
  return counter
end

-- -- what is kept ----------------------------------------------------------------------------------------------

local groups, group_changed, touched = {}, {}, {}
local paces, pace_changed = {}, {}
local windows, window_changed = {}, {}
local rules = { [job] = me }
local queued_more, leased_more = 0, 0
local crowded = call('EXISTS', key('crowd', job)) == 1

-- Records are stored as their values in a fixed order, which is half the size and the time of names and values.

local function pack_group(g)
  return cmsgpack.pack(g.last, g.till, g.due, g.fails, g.slow, g.why, g.busy, g.starting, g.jobs)
end

local function unpack_group(packed)
  local last, till, due, fails, slow, why, busy, starting, jobs = cmsgpack.unpack(packed)
  return {
    last = last, till = till, due = due, fails = fails, slow = slow, why = why, busy = busy, starting = starting,
    jobs = jobs,
  }
end

local function pack_pace(p)
  return cmsgpack.pack(p.delay, p.due, p.spot, p.windows, p.hosts, p.floors, p.home)
end

local function unpack_pace(packed)
  local delay, due, spot, count, hosts, floors, home = cmsgpack.unpack(packed)
  return { delay = delay, due = due, spot = spot, windows = count, hosts = hosts, floors = floors, home = home }
end

local function pack_window(w)
  return cmsgpack.pack(
    w.group, w.exhausted, w.floor, w.refill, w.asked, w.missed, w.served, w.leased, w.taken, w.queued, w.waits,
    w.listed, w.idle
  )
end

local function unpack_window(packed)
  local group, exhausted, floor, refill, asked, missed, served, leased, taken, queued, waits, listed, idle =
    cmsgpack.unpack(packed)
  return {
    group = group, exhausted = exhausted, floor = floor, refill = refill, asked = asked, missed = missed,
    served = served, leased = leased, taken = taken, queued = queued, waits = waits, listed = listed, idle = idle,
  }
end

local function pack_lease(l)
  return cmsgpack.pack(
    l.job, l.host, l.group, l.fp, l.worker, l.expires, l.delay, l.fails, l.slow, l.open, l.starting, l.begun, l.taken
  )
end

local function unpack_lease(packed)
  local owner, host, group, fp, worker, expires, delay, fails, slow, open, starting, begun, taken =
    cmsgpack.unpack(packed)
  return {
    job = owner, host = host, group = group, fp = fp, worker = worker, expires = expires, delay = delay,
    fails = fails, slow = slow, open = open, starting = starting, begun = begun, taken = taken,
  }
end

-- The clock of a group, whichever job asks. nil where there is none and `make` is not given.
local function group_of(name, make)
  local group = groups[name]
  if group == nil then
    local packed = call('GET', key('h', name))
    group = packed and unpack_group(packed)
    groups[name] = group
  end
  if not group and make then
    group = { last = 0, till = 0, due = 0, fails = 0, slow = 0, why = '', busy = 0, starting = 0, jobs = {} }
    groups[name] = group
  end
  return group or nil
end

-- What one job knows of a group: its own delay, when it may ask again, and its hosts that have something at hand.
local function pace_of(owner, name)
  local known = paces[owner]
  if not known then
    known = {}
    paces[owner], pace_changed[owner] = known, {}
  end
  if known[name] == nil then
    local packed = call('HGET', key('g', owner), name)
    known[name] = packed and unpack_pace(packed)
  end
  return known[name] or nil
end

local function window_of(owner, host)
  local known = windows[owner]
  if not known then
    known = {}
    windows[owner], window_changed[owner] = known, {}
  end
  if known[host] == nil then
    local packed = call('HGET', key('w', owner), host)
    known[host] = packed and unpack_window(packed)
  end
  return known[host] or nil
end

local function rules_of(owner)
  if not rules[owner] then
    local packed = call('HGET', key('rules'), owner)
    rules[owner] = packed and cmsgpack.unpack(packed) or me
  end
  return rules[owner]
end

local function touch(name)
  group_changed[name] = true
  touched[name] = true
end

-- -- rules -----------------------------------------------------------------------------------------------------

local function is_parked(fails, rule)
  return rule.park > 0 and fails >= rule.park
end

local function is_given_up(fails, rule)
  return is_parked(fails, rule) and fails >= rule.park + rule.probes
end

local function slots_of(fails, rule)
  if not is_parked(fails, rule) then
    return rule.per_host
  end
  return is_given_up(fails, rule) and 0 or 1
end

local function is_full(window, rule)
  return rule.pages >= 0 and window.taken >= rule.pages
end

local switched_off

local function is_off(host)
  if switched_off == nil then
    switched_off = call('EXISTS', key('off')) == 1
  end
  return switched_off and call('SISMEMBER', key('off'), host) == 1
end

-- After a wipe nobody knows what was started before it, and requests may begin on leases from before it while their workers
-- have not noticed (redis_epochs.py): every group first waits for that, and then a whole delay.
local function due_of(group, pace)
  local due = math.max(pace.due, group.due, group.till, group.last + pace.delay)
  return pace.delay > 0 and math.max(due, began_at() + me.slack + pace.delay) or due
end

local function window_size()
  local hosts = call('HLEN', key('w', job)) * me.partitions
  return math.min(me.window, math.max(math.floor(me.scheduled / math.max(hosts, 1)), 4))
end

-- -- the order of groups ---------------------------------------------------------------------------------------

local function ready_at(owner, name, pace, rule)
  local ready
  for _, host in ipairs(pace.hosts) do
    local window = window_of(owner, host)
    if is_full(window, rule) or is_off(host) then
      call('SADD', key('stuck', owner), name)
    else
      if window.queued > 0 then
        return 0
      end
      local first = call('ZRANGE', key('l', owner, host), 0, 0, 'WITHSCORES')[2]
      if first then
        ready = math.min(ready or tonumber(first), tonumber(first))
      end
    end
  end
  return ready
end

-- Give a group its place among those that are ready, or none while it cannot lease. Among equals the one that was
-- placed first comes first: a member begins with a number that grows. Then come the worker it was last leased to, and
-- its name.
local function reschedule(owner, name)
  local pace, group, rule = pace_of(owner, name), group_of(name), rules_of(owner)
  if not (pace and group) then
    return
  end
  local before = pace.spot
  pace.spot = ''
  local slots = slots_of(group.fails, rule)
  if slots == 0 and #pace.hosts > 0 then
    call('SADD', key('stuck', owner), name)
  end
  if not (group.starting > 0 and pace.delay > 0) and group.busy < slots then
    local ready = ready_at(owner, name, pace, rule)
    if ready then
      pace.spot = string.format('%016.0f', number()) .. pace.home .. name
      call('ZADD', key('ready', owner), math.max(due_of(group, pace), ready), pace.spot)
    end
  end
  if before ~= '' then
    call('ZREM', key('ready', owner), before)
  end
  pace_changed[owner][name] = true
end

-- -- who leases -----------------------------------------------------------------------------------------------

local ABSENT_SECONDS = 4

-- Say that this worker leases. Who has not asked for a while is no longer counted on.
local function note_worker()
  local workers = key('workers', job)
  call('ZADD', workers, now, me.worker)
  call('ZREMRANGEBYSCORE', workers, '-inf', now - ABSENT_SECONDS)
end

local function name_at(spot)
  return string.sub(spot, 29)
end

local present = {}

local function is_present(worker)
  if present[worker] == nil then
    present[worker] = call('ZSCORE', key('workers', job), worker) ~= false
  end
  return present[worker]
end

-- What stands for the worker of a group while it has none, and is as long as a name: the part the group is in.
local function nobody(name)
  local hash = 0
  for place = 1, #name do
    hash = (hash * 31 + string.byte(name, place)) % 1000003
  end
  return string.format('-%011.0f', hash % PARTS)
end

-- Whether a group is this worker's to lease first: `mine` marks its part with a 1, or whoever leased it last is gone.
-- An empty `mine` marks all there is. Not whoever leased it last: a worker that comes later would find every host taken.
local function is_mine(mine, spot)
  if mine == '' or string.byte(mine, tonumber(string.sub(nobody(name_at(spot)), 2)) + 1) == 49 then
    return true
  end
  local home = string.sub(spot, 17, 28)
  return string.byte(home) ~= 45 and not is_present(home)
end

-- -- windows ---------------------------------------------------------------------------------------------------

local function note_hunger(host, window, size)
  if window.exhausted or window.refill ~= 0 or crowded then
    return
  end
  if window.queued + window.waits <= math.floor(size / 4) then
    call('ZADD', key('hungry', job), 'NX', now, host)
  end
end

local function list(owner, host, window)
  if not window.listed then
    window.listed = true
    local pace = pace_of(owner, window.group)
    pace.hosts[#pace.hosts + 1] = host
    pace_changed[owner][window.group] = true
  end
end

local function unlist(owner, host, window)
  if not window.listed then
    return
  end
  window.listed = false
  local pace = pace_of(owner, window.group)
  for place, other in ipairs(pace.hosts) do
    if other == host then
      table.remove(pace.hosts, place)
      break
    end
  end
  pace_changed[owner][window.group] = true
end

local function seq_of(value)
  local seq = 0
  for place = 1, 8 do
    seq = seq * 256 + string.byte(value, place)
  end
  return seq
end

-- Take a request into its window. `value` is the position (8 bytes), the priority and the moment it may first be
-- fetched (a double each), and the packed request.
local function place(host, window, fingerprint, value, size)
  local requests = key('r', job, host)
  if call('HEXISTS', requests, fingerprint) == 1 then
    return false
  end
  local priority, moment = struct.unpack('>dd', value, 9)
  local floor = window.floor
  if floor then
    if priority > floor[1] or (priority == floor[1] and seq_of(value) > floor[2]) then
      window.missed = true
      return false
    end
  end
  if crowded and window.served >= size then
    window.exhausted, window.missed = false, true
    return false
  end
  if window.queued + window.waits >= size then
    window.floor = { priority, seq_of(value) }
    window.exhausted, window.missed = false, true
    return false
  end
  call('HSET', requests, fingerprint, value)
  if moment > now then
    call('ZADD', key('l', job, host), moment, fingerprint)
    window.waits = window.waits + 1
  else
    call('ZADD', key('q', job, host), priority, string.sub(value, 1, 8) .. fingerprint)
    window.queued = window.queued + 1
  end
  queued_more = queued_more + 1
  list(job, host, window)
  return true
end

local function count_queued(owner, more)
  if owner == job then
    queued_more = queued_more + more
  else
    call('HINCRBY', key('c', owner), 'queued', more)
  end
end

-- Take a window off the schedule with all that waits in it. The clock of its group stays until it has run out.
local function drop(owner, host, window)
  local name = window.group
  unlist(owner, host, window)
  windows[owner][host] = false
  window_changed[owner][host] = nil
  call('HDEL', key('w', owner), host)
  call('DEL', key('q', owner, host), key('l', owner, host), key('r', owner, host), key('t', owner, host))
  call('ZREM', key('hungry', owner), host)
  call('SREM', key('idle', owner), host)
  count_queued(owner, -window.queued - window.waits)
  local pace, group = pace_of(owner, name), group_of(name, true)
  pace.windows = pace.windows - 1
  pace_changed[owner][name] = true
  if pace.windows <= 0 then
    group.due = math.max(group.due, pace.due)
    for place, other in ipairs(group.jobs) do
      if other == owner then
        table.remove(group.jobs, place)
        break
      end
    end
    if pace.spot ~= '' then
      call('ZREM', key('ready', owner), pace.spot)
    end
    paces[owner][name] = false
    pace_changed[owner][name] = nil
    call('HDEL', key('g', owner), name)
  end
  touch(name)
end

-- -- leases ----------------------------------------------------------------------------------------------------

-- Note a start. The delay of a job stretches by its own jitter, which only adds.
local function start(owner, name, at, stretch)
  local group, pace = group_of(name, true), pace_of(owner, name)
  group.last = math.max(group.last, at)
  if pace then
    pace.due = math.max(pace.due, group.last + pace.delay * stretch)
    pace_changed[owner][name] = true
  end
  touch(name)
end

local function lease_at(token)
  local packed = call('HGET', key('x'), token)
  return packed and unpack_lease(packed)
end

-- Free the slot of an open lease. Whose worker never said whether it began is taken to have begun at `at`.
local function free(lease, at, stretch)
  local group = group_of(lease.group, true)
  group.busy = math.max(group.busy - 1, 0)
  if lease.starting then
    group.starting = math.max(group.starting - 1, 0)
    start(lease.job, lease.group, at, stretch)
  end
  lease.open, lease.starting = false, false
  touch(lease.group)
end

local function forget(token, lease)
  call('HDEL', key('x'), token)
  call('ZREM', key('lease'), token)
  leased_more = leased_more - 1
  local window = window_of(lease.job, lease.host)
  if window then
    window.leased = math.max(window.leased - 1, 0)
    window_changed[lease.job][lease.host] = true
  end
  return window
end

-- Forget a request after its commit.
local function settle(token, lease, recorded, at, stretch)
  if lease.open then
    free(lease, at, stretch)
  end
  local window = forget(token, lease)
  if not window then
    return
  end
  call('HDEL', key('r', lease.job, lease.host), lease.fp)
  if window.refill ~= 0 then
    local tombstones = key('t', lease.job, lease.host)
    call('SADD', tombstones, lease.fp)
    call('PEXPIRE', tombstones, math.ceil(me.refill * 3000))
  end
  if not recorded then
    window.taken = window.taken - 1
  end
  if rules_of(lease.job).pages >= 0 then
    touch(lease.group)
  end
end

-- -- the end ---------------------------------------------------------------------------------------------------

-- A clock that no job needs is kept for as long as it says something.
local function save_group(name, group)
  if #group.jobs > 0 then
    call('SET', key('h', name), pack_group(group))
    return
  end
  local rest = math.max(group.till, group.due, group.last, now) - now
  local open = group.busy > 0 and me.lease * 2 or 0
  call('SET', key('h', name), pack_group(group), 'PX', math.ceil((rest + open) * 1000) + MINUTE_MS)
end

-- A host that was never filled is not idle: while there is a crowd, another worker would take it off again first.
local function save_window(owner, host, window)
  local idle = window.queued + window.waits + window.leased == 0 and window.refill == 0 and window.asked > 0
  if idle ~= window.idle then
    window.idle = idle
    call(idle and 'SADD' or 'SREM', key('idle', owner), host)
  end
  call('HSET', key('w', owner), host, pack_window(window))
end

local function finish()
  for name in pairs(touched) do
    local group = group_of(name)
    for _, owner in ipairs(group and group.jobs or {}) do
      reschedule(owner, name)
    end
  end
  for name in pairs(group_changed) do
    if groups[name] then
      save_group(name, groups[name])
    end
  end
  for owner, names in pairs(pace_changed) do
    for name in pairs(names) do
      call('HSET', key('g', owner), name, pack_pace(paces[owner][name]))
    end
  end
  for owner, hosts in pairs(window_changed) do
    for host in pairs(hosts) do
      save_window(owner, host, windows[owner][host])
    end
  end
  if queued_more ~= 0 then
    call('HINCRBY', key('c', job), 'queued', queued_more)
  end
  if leased_more ~= 0 then
    call('HINCRBY', key('c', job), 'leased', leased_more)
  end
  if counter then
    call('SET', key('n'), exact(counter))
  end
end
