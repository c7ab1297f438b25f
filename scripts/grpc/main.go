// Command grpc-backend serves the test service of gRPC's interoperability suite by grpc-go's own server, and counts what it answers.
//
//	/grpc.testing.TestService/UnaryCall             one message of `response_size` bytes
//	/grpc.testing.TestService/StreamingOutputCall   a message for each of `response_parameters`
//	GET /counts                                     calls begun and answered OK, messages sent, and the sum of the latencies that calls told
//
// A call of the lab's client tells in the metadata `lab-told-us` the latency in µs of the call before it on its connection. The sum of those
// is known here, too, so that a client's report of other latencies is found out. The port takes HTTP/1.1 and HTTP/2 without TLS, and serves the
// lab's pages by both, so that a proxy that speaks HTTP/2 to its backend gets them, too.
package main

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/stats"
)

const (
	pages = "/srv/pages"
	told  = "lab-told-us"
	// concurrent is how many calls a client may have open on one connection, which is Go's own value.
	concurrent = 250
)

var begun, answered, messages, toldSum atomic.Int64

// counter counts calls and messages as grpc-go's server reports them.
type counter struct{}

func (counter) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context   { return ctx }
func (counter) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }
func (counter) HandleConn(context.Context, stats.ConnStats)                       {}

func (counter) HandleRPC(ctx context.Context, event stats.RPCStats) {
	switch event := event.(type) {
	case *stats.Begin:
		begun.Add(1)
		for _, text := range metadata.ValueFromIncomingContext(ctx, told) {
			microseconds, _ := strconv.ParseInt(text, 10, 64)
			toldSum.Add(microseconds)
		}
	case *stats.OutPayload:
		messages.Add(1)
	case *stats.End:
		if event.Error == nil {
			answered.Add(1)
		}
	}
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
	return fmt.Sprintf("begun %d\nanswered %d\nmessages %d\ntold_sum %d\n", begun.Load(), answered.Load(), messages.Load(), toldSum.Load())
}

// split gives calls to gRPC, and everything else to the pages, with the header that names this pod, as the lab's nginx does.
func split(calls, others http.Handler) http.Handler {
	host, _ := os.Hostname()
	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if request.ProtoMajor == 2 && strings.HasPrefix(request.Header.Get("Content-Type"), "application/grpc") {
			calls.ServeHTTP(writer, request)
			return
		}
		writer.Header().Set("X-Lab-Backend", host)
		others.ServeHTTP(writer, request)
	})
}

func main() {
	debug.SetGCPercent(800) // what it collects is no part of what is measured
	if len(os.Args) == 2 && os.Args[1] == "-version" {
		fmt.Println("grpc-backend 1")
		return
	}
	calls := grpc.NewServer(grpc.StatsHandler(counter{}))
	testgrpc.RegisterTestServiceServer(calls, interop.NewTestServer())
	constant := func(line string) func(*http.Request) string { return func(*http.Request) string { return line } }
	mux := http.NewServeMux()
	mux.HandleFunc("/counts", text(200, counts))
	mux.HandleFunc("/healthz", text(200, constant("ok\n")))
	mux.HandleFunc("/echo/{name}", text(200, echoed))
	mux.HandleFunc("/status/404", text(404, constant("not found\n")))
	mux.HandleFunc("/status/503", text(503, constant("unavailable\n")))
	mux.HandleFunc("/{$}", text(200, constant("ok\n")))
	mux.Handle("/", http.FileServer(http.Dir(pages)))
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	log.Fatal((&http.Server{
		Addr: ":8080", Handler: split(calls, mux), Protocols: protocols, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: concurrent},
	}).ListenAndServe())
}
