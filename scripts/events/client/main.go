// Command events-client holds many streams of Server-Sent Events at once and reports when each event arrived.
//
//	events-client -connections 200 -streams 1 -every 100ms -duration 6s [-protocol h2|h2c] [-host NAME] http://ADDRESS/events
//
// Its only output is one JSON object on stdout. Times are µs: those of streams since `began_us`, which is of the machine's
// clock, as are the send times that the events carry. The HTTP library is Go's own, for HTTP/1.1, HTTP/2 over TLS and h2c.
package main

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/http"
	"net/http/httptrace"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	version = "1"
	// sentModulo is that of events-backend, whose sum of send times must equal ours.
	sentModulo = 1_000_000_000
	// togetherUs is how long after the one before an event counts as having arrived together with it.
	togetherUs = 1000
	// Streams are opened one by one, so that opening them is no load of its own: apart from each other, but over a second at least.
	opening, apart = time.Second, 2 * time.Millisecond
	memoryLimit    = 512 << 20
	// exactBits is how many leading bits of a delay are kept, as in the lab's histograms.
	exactBits = 11
)

// How a stream ended.
const (
	complete = iota
	cut
	refused
)

type options struct {
	connections, streams, size, nth int
	every, duration, timeout, hold  time.Duration
	protocol, host, url             string
	count                           int
}

// row is one stream: its times, what arrived on it, and how it ended.
type row struct {
	Opened    int64 `json:"opened_us"`
	Answered  int64 `json:"answered_us"`
	First     int64 `json:"first_us"`
	Last      int64 `json:"last_us"`
	Ended     int64 `json:"ended_us"`
	Events    int   `json:"events"`
	Coalesced int   `json:"coalesced"`
	Gap       int64 `json:"gap_us"`
	Bytes     int64 `json:"bytes"`
	End       int   `json:"end"`
	fault     string
	kind      string
	sent      []int64
	delays    []int64
}

type report struct {
	Tool      string         `json:"tool"`
	Version   string         `json:"version"`
	Began     int64          `json:"began_us"`
	Ended     int64          `json:"ended_us"`
	Asked     int            `json:"asked"`
	Count     int            `json:"count"`
	Events    int            `json:"events"`
	SentSum   int64          `json:"sent_sum"`
	DelaySum  int64          `json:"delay_sum_us"`
	Delays    [][2]int64     `json:"delays"`
	ByEvent   [][3]int64     `json:"by_event"`
	Errors    map[string]int `json:"errors"`
	Faults    map[string]int `json:"faults"`
	Protocols map[string]int `json:"protocols"`
	Columns   []string       `json:"columns"`
	Rows      [][]int64      `json:"rows"`
	Done      bool           `json:"done"`
}

var columns = []string{"opened_us", "answered_us", "first_us", "last_us", "ended_us", "events", "coalesced", "gap_us", "bytes", "end"}

func (line *row) numbers() []int64 {
	return []int64{line.Opened, line.Answered, line.First, line.Last, line.Ended, int64(line.Events), int64(line.Coalesced), line.Gap, line.Bytes, int64(line.End)}
}

func parse() (options, error) {
	var asked options
	show := flag.Bool("version", false, "print the version")
	flag.IntVar(&asked.connections, "connections", 1, "connections")
	flag.IntVar(&asked.streams, "streams", 1, "streams at once on each connection; more than one needs HTTP/2")
	flag.IntVar(&asked.size, "size", 200, "bytes of padding in an event")
	flag.IntVar(&asked.nth, "nth", 1, "which events the backend holds: every nth")
	flag.DurationVar(&asked.every, "every", 100*time.Millisecond, "time between two events of a stream")
	flag.DurationVar(&asked.duration, "duration", 6*time.Second, "time from the first to the last event of a stream")
	flag.DurationVar(&asked.timeout, "timeout", 10*time.Second, "how much later than due the last event may come")
	flag.DurationVar(&asked.hold, "hold", 0, "how long the backend holds an event after its send time")
	flag.StringVar(&asked.protocol, "protocol", "h1", "h1, h2 (over TLS) or h2c")
	flag.StringVar(&asked.host, "host", "", "the Host header; with TLS the name in the handshake")
	flag.Parse()
	if *show {
		fmt.Println("events-client", version)
		os.Exit(0)
	}
	asked.url = flag.Arg(0)
	if flag.NArg() != 1 || asked.connections < 1 || asked.streams < 1 || asked.every <= 0 || asked.duration <= 0 {
		return asked, errors.New("expected one URL, and connections, streams, -every and -duration above 0")
	}
	if asked.protocol == "h1" && asked.streams > 1 {
		return asked, errors.New("-streams: HTTP/1.1 has one stream on a connection")
	}
	asked.count = int(asked.duration/asked.every) + 1
	return asked, nil
}

// connection sends requests one after the other where several share it: Go's library counts those that wait for the server's
// number of streams among the open ones, so that from some number on none of them would ever be sent.
type connection struct {
	*http.Transport
	turn chan struct{}
}

// open sends a request once the one before is on its way, and returns the answer.
func (held connection) open(request *http.Request) (*http.Response, error) {
	if cap(held.turn) == 0 {
		return held.RoundTrip(request)
	}
	select {
	case held.turn <- struct{}{}:
	case <-request.Context().Done():
		return nil, request.Context().Err()
	}
	sent := sync.OnceFunc(func() { <-held.turn })
	defer sent()
	trace := &httptrace.ClientTrace{WroteHeaders: sent}
	return held.RoundTrip(request.WithContext(httptrace.WithClientTrace(request.Context(), trace)))
}

// connections returns one transport for all connections of HTTP/1.1, and one for each connection of HTTP/2.
func connections(asked options) []connection {
	count := asked.connections
	if asked.protocol == "h1" {
		count = 1
	}
	made := make([]connection, count)
	for number := range made {
		protocols := new(http.Protocols)
		protocols.SetHTTP1(asked.protocol == "h1")
		protocols.SetHTTP2(asked.protocol == "h2")
		protocols.SetUnencryptedHTTP2(asked.protocol == "h2c")
		made[number] = connection{turn: make(chan struct{}, min(asked.streams-1, 1)), Transport: &http.Transport{
			Protocols:           protocols,
			TLSClientConfig:     &tls.Config{InsecureSkipVerify: true, ServerName: asked.host},
			DisableCompression:  true,
			DialContext:         (&net.Dialer{Timeout: asked.timeout}).DialContext,
			TLSHandshakeTimeout: asked.timeout,
			HTTP2:               &http.HTTP2Config{StrictMaxConcurrentRequests: true},
		}}
	}
	return made
}

// stamped remembers when the last bytes arrived.
type stamped struct {
	io.Reader
	at   time.Time
	read int64
}

func (reader *stamped) Read(into []byte) (int, error) {
	count, err := reader.Reader.Read(into)
	reader.at = time.Now()
	reader.read += int64(count)
	return count, err
}

// kindOf returns the lab's word for an error.
func kindOf(err error) string {
	var timed net.Error
	switch text := err.Error(); {
	case errors.Is(err, context.DeadlineExceeded) || errors.As(err, &timed) && timed.Timeout():
		return "timeout"
	case strings.Contains(text, "dial ") || strings.Contains(text, "refused") || strings.Contains(text, "handshake"):
		return "connect"
	default:
		return "read"
	}
}

func (line *row) fail(end int, kind, fault string) {
	line.End, line.kind, line.fault = end, kind, fault
}

// hear reads a stream until its last event, its end, or the deadline.
func (line *row) hear(asked options, body io.Reader, began time.Time) {
	arrivals := &stamped{Reader: body}
	reader := bufio.NewReaderSize(arrivals, 64<<10)
	line.sent, line.delays = make([]int64, 0, asked.count), make([]int64, 0, asked.count)
	number := -1
	for line.Events < asked.count {
		text, err := reader.ReadSlice('\n')
		line.Bytes = arrivals.read
		if err != nil {
			kind := "read"
			if err != io.EOF {
				kind = kindOf(err)
			}
			line.fail(cut, kind, "cut: "+err.Error())
			return
		}
		name, value, _ := bytes.Cut(bytes.TrimSuffix(text, []byte("\n")), []byte(": "))
		switch string(name) {
		case "id":
			number, _ = strconv.Atoi(string(value))
		case "data":
			stamp, padding, _ := bytes.Cut(value, []byte(" "))
			sent, err := strconv.ParseInt(string(stamp), 10, 64)
			if err != nil || number != line.Events || len(padding) != asked.size {
				line.fail(cut, "body", fmt.Sprintf("event %d is not what was sent", line.Events))
				return
			}
			line.note(sent, arrivals.at, began)
		}
	}
	// the end of the answer belongs to the stream; what it says does not
	_, _ = io.Copy(io.Discard, reader)
	line.Bytes = arrivals.read
}

// note counts one event that was sent and arrived at these times.
func (line *row) note(sent int64, arrived, began time.Time) {
	at := arrived.Sub(began).Microseconds()
	if line.Events == 0 {
		line.First = at
	} else {
		gap := at - line.Last
		line.Gap = max(line.Gap, gap)
		if gap < togetherUs {
			line.Coalesced++
		}
	}
	line.Last = at
	line.Events++
	line.sent = append(line.sent, sent)
	line.delays = append(line.delays, arrived.UnixMicro()-sent)
}

// hold opens one stream and hears it.
func hold(ctx context.Context, asked options, held connection, began time.Time) (*row, string) {
	line := &row{Opened: time.Since(began).Microseconds()}
	defer func() { line.Ended = time.Since(began).Microseconds() }()
	url := fmt.Sprintf("%s?count=%d&every_us=%d&size=%d&hold_us=%d&nth=%d", asked.url, asked.count,
		asked.every.Microseconds(), asked.size, asked.hold.Microseconds(), asked.nth)
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		line.fail(refused, "other", err.Error())
		return line, ""
	}
	request.Host = cmp.Or(asked.host, request.Host)
	request.Header.Set("Accept", "text/event-stream")
	response, err := held.open(request)
	if err != nil {
		line.fail(refused, kindOf(err), "refused: "+err.Error())
		return line, ""
	}
	defer response.Body.Close()
	line.Answered = time.Since(began).Microseconds()
	if response.StatusCode != http.StatusOK {
		line.fail(refused, "status", fmt.Sprintf("status %d", response.StatusCode))
		return line, response.Proto
	}
	line.hear(asked, response.Body, began)
	return line, response.Proto
}

// rounded returns a delay with its leading bits alone, the lower edge of its bucket in the lab's histograms.
func rounded(delay int64) int64 {
	shift := max(0, bits.Len64(uint64(max(0, delay)))-exactBits)
	return delay >> shift << shift
}

// summarise adds up the streams.
func summarise(asked options, lines []*row, result *report) {
	delays, byEvent := map[int64]int64{}, make([][]int64, asked.count)
	for _, line := range lines {
		result.Rows = append(result.Rows, line.numbers())
		result.Events += line.Events
		if line.End != complete {
			result.Errors[line.kind]++
			result.Faults[line.fault]++
		}
		for number, delay := range line.delays {
			result.SentSum += line.sent[number] % sentModulo
			result.DelaySum += delay
			delays[rounded(delay)]++
			byEvent[number] = append(byEvent[number], delay)
		}
	}
	for delay, count := range delays {
		result.Delays = append(result.Delays, [2]int64{delay, count})
	}
	slices.SortFunc(result.Delays, func(one, other [2]int64) int { return cmp.Compare(one[0], other[0]) })
	for _, of := range byEvent {
		if len(of) > 0 {
			slices.Sort(of)
			result.ByEvent = append(result.ByEvent, [3]int64{of[len(of)/2], of[len(of)-1], int64(len(of))})
		}
	}
}

// wake asks once for no event on a connection of its own: the first request of a process takes milliseconds of its own.
func wake(asked options) {
	ctx, stop := context.WithTimeout(context.Background(), opening)
	defer stop()
	asked.count = 0
	one := connections(asked)[0]
	defer one.CloseIdleConnections()
	hold(ctx, asked, one, time.Now())
}

func run(asked options) report {
	wake(asked)
	began := time.Now()
	made, many := connections(asked), asked.connections*asked.streams
	over, end := max(opening, time.Duration(many)*apart), began.Add(asked.duration)
	ctx, stop := context.WithDeadline(context.Background(), end.Add(over+asked.hold+asked.timeout))
	defer stop()
	lines, protocols := make([]*row, many), make([]string, many)
	var streams sync.WaitGroup
	for number := range many {
		time.Sleep(time.Until(began.Add(over * time.Duration(number) / time.Duration(many))))
		streams.Go(func() {
			lines[number], protocols[number] = hold(ctx, asked, made[number%len(made)], began)
		})
	}
	streams.Wait()
	time.Sleep(time.Until(end)) // as long as was asked, even where every stream was cut
	result := report{
		Tool: "events-client", Version: version, Began: began.UnixMicro(), Asked: many, Count: asked.count,
		Delays: [][2]int64{}, ByEvent: [][3]int64{}, Errors: map[string]int{}, Faults: map[string]int{},
		Protocols: map[string]int{}, Columns: columns, Rows: [][]int64{}, Done: true,
	}
	result.Ended = result.Began + time.Since(began).Microseconds()
	summarise(asked, lines, &result)
	for _, protocol := range protocols {
		if protocol != "" {
			result.Protocols[protocol]++
		}
	}
	return result
}

func main() {
	// Its garbage collector is no part of what is measured.
	debug.SetGCPercent(-1)
	debug.SetMemoryLimit(memoryLimit)
	asked, err := parse()
	if err != nil {
		fmt.Fprintln(os.Stderr, "events-client:", err)
		os.Exit(2)
	}
	if err := json.NewEncoder(os.Stdout).Encode(run(asked)); err != nil {
		fmt.Fprintln(os.Stderr, "events-client:", err)
		os.Exit(1)
	}
}
