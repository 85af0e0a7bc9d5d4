-- Lease up to a number of requests of groups that are due: of those this worker is to lease first, then of others that
-- have been due for a while, because their own worker is busy or gone. Returns the instant, the epoch, and for each lease
-- its number, host, group, delay, failures, slowness, and the packed request with what stands before it.
local limit, mine, patience = unpack(cmsgpack.unpack(ARGV[4]))
local leases, size = { exact(now), epoch_name() }, window_size()
local expires = now + me.lease
call('ZADD', key('alive'), now, me.worker)
note_worker()
if call('EXISTS', key('control', job)) == 1 then
  return leases
end

local function ripen(host, window)
  if window.waits == 0 then
    return
  end
  local later, requests = key('l', job, host), key('r', job, host)
  for _, fingerprint in ipairs(call('ZRANGEBYSCORE', later, '-inf', now, 'LIMIT', 0, me.most)) do
    local value = call('HGET', requests, fingerprint)
    call('ZADD', key('q', job, host), struct.unpack('>d', value, 9), string.sub(value, 1, 8) .. fingerprint)
    call('ZREM', later, fingerprint)
    window.waits, window.queued = window.waits - 1, window.queued + 1
    window_changed[job][host] = true
  end
end

local function take(host, window, name, group, pace)
  local member = call('ZPOPMIN', key('q', job, host))[1]
  local fingerprint = string.sub(member, 9)
  local token = number()
  window.queued, window.leased = window.queued - 1, window.leased + 1
  window.taken, window.served = window.taken + 1, window.served + 1
  group.busy, group.starting = group.busy + 1, group.starting + 1
  -- Round robin between groups without a delay: the one served last is due last.
  pace.due, pace.home = math.max(pace.due, now), me.worker
  local lease = {
    job = job, host = host, group = name, fp = fingerprint, worker = me.worker, expires = expires,
    delay = pace.delay, fails = group.fails, slow = group.slow, open = true, starting = true, begun = false,
    taken = false,
  }
  call('HSET', key('x'), exact(token), pack_lease(lease))
  call('ZADD', key('lease'), expires, exact(token))
  queued_more, leased_more = queued_more - 1, leased_more + 1
  window_changed[job][host], group_changed[name] = true, true
  note_hunger(host, window, size)
  local value = call('HGET', key('r', job, host), fingerprint)
  for _, part in ipairs({
    exact(token), host, name, exact(lease.delay), lease.fails, exact(lease.slow), string.sub(value, 25),
  }) do
    leases[#leases + 1] = part
  end
end

-- Take the best request of the group's hosts in turn. Whose window is empty leaves the list.
local function lease_from(name)
  local group, pace = group_of(name), pace_of(job, name)
  for _ = 1, #pace.hosts do
    local host = table.remove(pace.hosts, 1)
    pace.hosts[#pace.hosts + 1] = host
    local window = window_of(job, host)
    ripen(host, window)
    if window.queued > 0 and not is_full(window, me) and not is_off(host) then
      take(host, window, name, group, pace)
      if window.queued + window.waits == 0 then
        unlist(job, host, window)
      end
      return true
    end
  end
  return false
end

local left = limit

local function lease_due(latest, wanted, looks)
  local passed = 0
  while left > 0 and looks > 0 do
    local most = wanted == '' and math.min(left, 64) or 64
    local ready = call('ZRANGEBYSCORE', key('ready', job), '-inf', latest, 'LIMIT', passed, most)
    if #ready == 0 then
      return
    end
    for _, spot in ipairs(ready) do
      looks = looks - 1
      if left == 0 then
        return
      elseif not is_mine(wanted, spot) then
        passed = passed + 1
      else
        local name = name_at(spot)
        local group, pace = group_of(name), pace_of(job, name)
        if not (group and pace) or pace.spot ~= spot then
          call('ZREM', key('ready', job), spot)
        else
          -- Another job may have started a request since, or may hold the slot: then only its place is new.
          local busy = group.busy >= slots_of(group.fails, me) or (group.starting > 0 and pace.delay > 0)
          if not busy and due_of(group, pace) <= now and lease_from(name) then
            left = left - 1
          end
          reschedule(job, name)
        end
      end
    end
  end
end

if mine ~= '' then
  lease_due(now, mine, math.min(16 * limit + 64, me.most))
end
lease_due(mine == '' and now or now - patience, '', 2 * limit + me.most)
finish()
return leases
