-- Take idle hosts off the schedule. Returns how many hosts are left.
for _, host in ipairs(call('SRANDMEMBER', key('idle', job), me.most)) do
  local window = window_of(job, host)
  if window and window.idle then
    drop(job, host, window)
  else
    call('SREM', key('idle', job), host)
  end
end
finish()
return call('HLEN', key('w', job))
