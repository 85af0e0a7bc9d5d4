-- How many hosts need a refill now.
return call('ZCOUNT', key('hungry', job), '-inf', now)
