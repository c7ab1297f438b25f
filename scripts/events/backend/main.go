// Command events-backend answers with Server-Sent Events whose send times are known to the microsecond.
//
//	GET /events?count=61&every_us=100000&size=200&hold_us=0&nth=1
//
//	id: 0
//	data: 1796400000123456 xxxxx…
//
// The first number of an event's data is its send time on the machine's clock, in µs since the epoch. The event is held back for
// hold_us after that time, every nth one; so a delay that is known is put in. The program serves the lab's pages, too, over HTTP/1.1 and
// h2c (HTTP/2 without TLS). /counts has what it has sent, so that a client's count can be compared with it.
package main

import (
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

const (
	pages = "/srv/pages"
	// sentModulo keeps the sum of send times small enough for any reader of numbers.
	sentModulo = 1_000_000_000
)

var (
	begun, finished, events, sentSum atomic.Int64
	accel                            = os.Getenv("X_ACCEL_BUFFERING")
)

// parameter returns a number of the query, or the fallback where the query has none.
func parameter(request *http.Request, name string, fallback int64) int64 {
	if value, err := strconv.ParseInt(request.URL.Query().Get(name), 10, 64); err == nil {
		return value
	}
	return fallback
}

// hold waits in a thread of its own: Go's timers are late by up to a millisecond.
func hold(duration time.Duration) {
	until := time.Now().Add(duration)
	for left := duration; left > 0; left = time.Until(until) {
		wait := syscall.NsecToTimespec(left.Nanoseconds())
		_ = syscall.Nanosleep(&wait, nil)
	}
}

// stream answers one request with its events, one every every_us from the request's arrival on.
func stream(writer http.ResponseWriter, request *http.Request) {
	count, nth := parameter(request, "count", 1), max(1, parameter(request, "nth", 1))
	every := time.Duration(parameter(request, "every_us", 0)) * time.Microsecond
	held := time.Duration(parameter(request, "hold_us", 0)) * time.Microsecond
	padding := strings.Repeat("x", int(max(0, parameter(request, "size", 0))))
	header := writer.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-cache")
	if accel != "" {
		header.Set("X-Accel-Buffering", accel)
	}
	control := http.NewResponseController(writer)
	if count < 1 { // a client that wakes up
		return
	}
	due, timer := time.Now(), time.NewTimer(0)
	defer timer.Stop()
	begun.Add(1)
	for number := range count {
		select {
		case <-request.Context().Done():
			return
		case <-timer.C:
		}
		sent := time.Now().UnixMicro()
		if held > 0 && number%nth == 0 {
			hold(held)
		}
		_, err := fmt.Fprintf(writer, "id: %d\ndata: %d %s\n\n", number, sent, padding)
		if err != nil || control.Flush() != nil {
			return
		}
		events.Add(1)
		sentSum.Add(sent % sentModulo)
		due = due.Add(every)
		timer.Reset(time.Until(due))
	}
	finished.Add(1)
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
	return fmt.Sprintf("begun %d\nfinished %d\nevents %d\nsent_sum %d\nx_accel_buffering %s\n",
		begun.Load(), finished.Load(), events.Load(), sentSum.Load(), accel)
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
		fmt.Println("events-backend 1")
		return
	}
	constant := func(line string) func(*http.Request) string { return func(*http.Request) string { return line } }
	mux := http.NewServeMux()
	mux.HandleFunc("/events", stream)
	mux.HandleFunc("/counts", text(200, counts))
	mux.HandleFunc("/healthz", text(200, constant("ok\n")))
	mux.HandleFunc("/echo/{name}", text(200, echoed))
	mux.HandleFunc("/status/404", text(404, constant("not found\n")))
	mux.HandleFunc("/status/503", text(503, constant("unavailable\n")))
	mux.HandleFunc("/{$}", text(200, constant("ok\n")))
	mux.Handle("/", http.FileServer(http.Dir(pages)))
	server := &http.Server{Addr: ":8080", Handler: named(mux), Protocols: new(http.Protocols)}
	server.Protocols.SetHTTP1(true)
	server.Protocols.SetUnencryptedHTTP2(true)
	server.HTTP2 = &http.HTTP2Config{MaxConcurrentStreams: 10_000}
	log.Fatal(server.ListenAndServe())
}
