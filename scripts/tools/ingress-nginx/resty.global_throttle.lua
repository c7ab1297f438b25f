-- stub: memcached rate limits (global-rate-limit-*, off by default).
return { new = function() return nil, "resty.global_throttle is not in this image" end }
