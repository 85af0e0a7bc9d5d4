-- Run on every new connection: a server that was started anew may have lost what it knew last, so a new epoch begins.
-- Returns the instant, into how many partitions this schedule is parted, and the epoch.
local found = call('GET', key('epoch'))
if not found or string.match(found, '%S+$') ~= run_id() then
  new_epoch(run_id())
end
call('SETNX', key('partitions'), me.partitions)
call('HSET', key('rules'), job, ARGV[3])
call('ZADD', key('alive'), now, me.worker)
return { exact(now), call('GET', key('partitions')), epoch_name() }
