-- Note whether more hosts have work than may be active.
if cmsgpack.unpack(ARGV[4]) then
  call('SET', key('crowd', job), '1')
else
  call('DEL', key('crowd', job))
end
return 0
