-- Debian installs lua-resty-dns under another name.
return require("nginx.dns.resolver")
