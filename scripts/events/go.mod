// The Go programs of the load `events`, built by scripts/bring: nothing but Go's own library, which uv.lock pins with Go.
module lab.test/events

go 1.26
