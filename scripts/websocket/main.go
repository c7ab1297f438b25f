// Command websocket-backend serves go-httpbin's WebSocket echo, and counts what goes through it.
//
//	GET /websocket/echo    go-httpbin's own, as are /sse, /drip, /stream-bytes/ and /delay/
//	GET /counts            WebSockets begun, messages echoed, and the sum of the round trips that they told
//
// A message of the lab's client begins with its number and with the round trips in µs that the client has measured since its last
// message. The sum of those is known here, too, so that a client's report of other round trips is found out. The names on /counts are
// those of events-backend. The program serves the lab's pages, too.
package main

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/mccutchen/go-httpbin/v2/httpbin"
)

const (
	pages = "/srv/pages"
	// longest is for how long go-httpbin lets a WebSocket live: longer than any load.
	longest = 48 * time.Hour
	// wholeText is the first byte of a text message in one frame, and shortMost the most bytes of a frame with a header of two bytes.
	wholeText, shortMost = 0x81, 125
)

var begun, finished, messages, toldSum atomic.Int64

// counted is a WebSocket's connection. go-httpbin flushes it after each frame, so every write is one frame.
type counted struct{ net.Conn }

func (conn counted) Write(frame []byte) (int, error) {
	written, err := conn.Conn.Write(frame)
	if err == nil && len(frame) > 2 && frame[0] == wholeText {
		text := frame[2:]
		if frame[1] > shortMost {
			text = frame[4:]
		}
		var number, told int64
		_, _ = fmt.Sscan(string(text[:min(len(text), 40)]), &number, &told)
		messages.Add(1)
		toldSum.Add(told)
	}
	return written, err
}

func (conn counted) Close() error {
	finished.Add(1)
	return conn.Conn.Close()
}

// upgrading gives go-httpbin the connection of a WebSocket as a counted one.
type upgrading struct{ http.ResponseWriter }

func (writer upgrading) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, both, err := http.NewResponseController(writer.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	begun.Add(1)
	own := counted{conn}
	return own, bufio.NewReadWriter(both.Reader, bufio.NewWriter(own)), nil
}

// text answers with a line of text.
func text(status int, line func(*http.Request) string) http.HandlerFunc {
	return func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("Content-Type", "text/plain")
		writer.WriteHeader(status)
		_, _ = fmt.Fprint(writer, line(request))
	}
}

// echoed returns a header as it arrived, for the lab's read-backs.
func echoed(request *http.Request) string {
	if name := request.PathValue("name"); name != "host" {
		return request.Header.Get(name)
	}
	return request.Host
}

func counts(*http.Request) string {
	return fmt.Sprintf("begun %d\nfinished %d\nevents %d\nsent_sum %d\n",
		begun.Load(), finished.Load(), messages.Load(), toldSum.Load())
}

// named adds the header that names this pod, as the lab's nginx does.
func named(handler http.Handler) http.Handler {
	host, _ := os.Hostname()
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		writer.Header().Set("X-Lab-Backend", host)
		handler.ServeHTTP(writer, request)
	})
}

func main() {
	debug.SetGCPercent(800) // what it collects is no part of what is measured
	if len(os.Args) == 2 && os.Args[1] == "-version" {
		fmt.Println("websocket-backend 1")
		return
	}
	constant := func(line string) func(*http.Request) string { return func(*http.Request) string { return line } }
	bin, mux := httpbin.New(httpbin.WithMaxDuration(longest)).Handler(), http.NewServeMux()
	mux.HandleFunc("/websocket/echo", func(writer http.ResponseWriter, request *http.Request) {
		bin.ServeHTTP(upgrading{writer}, request)
	})
	for _, path := range []string{"/sse", "/drip", "/stream-bytes/", "/delay/"} {
		mux.Handle(path, bin)
	}
	mux.HandleFunc("/counts", text(200, counts))
	mux.HandleFunc("/healthz", text(200, constant("ok\n")))
	mux.HandleFunc("/echo/{name}", text(200, echoed))
	mux.HandleFunc("/status/404", text(404, constant("not found\n")))
	mux.HandleFunc("/status/503", text(503, constant("unavailable\n")))
	mux.HandleFunc("/{$}", text(200, constant("ok\n")))
	mux.Handle("/", http.FileServer(http.Dir(pages)))
	log.Fatal((&http.Server{Addr: ":8080", Handler: named(mux)}).ListenAndServe())
}
