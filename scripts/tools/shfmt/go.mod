module lab.local/tools/shfmt

go 1.27.0

tool mvdan.cc/sh/v3/cmd/shfmt

require (
	github.com/google/renameio/v2 v2.0.0 // indirect
	github.com/rogpeppe/go-internal v1.14.1 // indirect
	golang.org/x/sys v0.33.0 // indirect
	golang.org/x/term v0.32.0 // indirect
	mvdan.cc/editorconfig v0.3.0 // indirect
	mvdan.cc/sh/v3 v3.12.0 // indirect
)
