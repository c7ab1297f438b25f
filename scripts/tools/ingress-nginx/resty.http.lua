-- stub: certificate.lua wants it for OCSP stapling (enable-ocsp, off by default).
local no = function() return nil, "resty.http is not in this image" end
return { new = function() return { set_timeout = no, parse_uri = no, request_uri = no } end }
