// The backend of the load `websocket`, built by scripts/bring: go-httpbin, which has no dependencies of its own.
module lab.test/websocket

go 1.26.0

require github.com/mccutchen/go-httpbin/v2 v2.26.0
