-- Take leases from workers that were silent for too long. The slot and the clock of a group are freed whichever job
-- the lease is of; the lease itself goes to one worker of its own job, which has the time of a lease to commit it.
-- Returns how many were looked at, then what `lease` returns of each, with its expiry and whether it had begun.
local stretch = cmsgpack.unpack(ARGV[4])
call('ZADD', key('alive'), now, me.worker)
call('ZREMRANGEBYSCORE', key('alive'), '-inf', now - 86400)
local tokens = call('ZRANGEBYSCORE', key('lease'), '-inf', now, 'LIMIT', 0, me.most)
local lost = { #tokens }

local function hand_over(token, lease)
  local value = call('HGET', key('r', job, lease.host), lease.fp)
  if not value then
    -- Its host was taken off the schedule.
    settle(token, lease, false, now, stretch)
    return
  end
  if lease.open then
    free(lease, now, stretch)
  end
  for _, part in ipairs({
    token, lease.host, lease.group, exact(lease.delay), lease.fails, exact(lease.slow), string.sub(value, 25),
    exact(lease.expires), lease.begun and 1 or 0,
  }) do
    lost[#lost + 1] = part
  end
  lease.worker, lease.expires, lease.taken = me.worker, now + me.lease, true
  call('HSET', key('x'), token, pack_lease(lease))
  call('ZADD', key('lease'), lease.expires, token)
end

for _, token in ipairs(tokens) do
  local lease = lease_at(token)
  if not lease then
    call('ZREM', key('lease'), token)
  else
    -- A released lease waits for its commit and belongs to its worker for as long as that one is heard of. One that was
    -- handed over does not: the answer that told its worker of it may be lost.
    local kept = not (lease.open or lease.taken)
    local heard = kept and tonumber(call('ZSCORE', key('alive'), lease.worker) or 0) or 0
    if heard + me.lease > now then
      call('ZADD', key('lease'), now + me.lease, token)
    elseif lease.job == job then
      hand_over(token, lease)
    else
      if lease.open then
        free(lease, now, 1)
        call('HSET', key('x'), token, pack_lease(lease))
      end
      call('ZREM', key('lease'), token)
      call('SADD', key('lost', lease.job), token)
    end
  end
end
for _, token in ipairs(call('SPOP', key('lost', job), me.most)) do
  local lease = lease_at(token)
  if lease then
    hand_over(token, lease)
  end
end
finish()
return lost
