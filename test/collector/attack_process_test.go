// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"compress/gzip"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.opentelemetry.io/collector/pdata/ptrace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/internal/testwire"
)

// The parts of the memory of a Collector under attack, in MiB. otelcol-config.yaml sets the first, the receiver's
// admission::request_limit_mib the second, max_recv_msg_size_mib the third.
const (
	limiterMiB = 768 // memory_limiter refuses above this, and collects garbage before; GOMEMLIMIT is the same
	requestMiB = 256 // memory of requests that the limiter has not seen yet
	messageMiB = 64  // buffer of gRPC for a request before any component sees it, for each sender
	programMiB = 128 // the program, and the overhead of its runtime
)

// senders is the number of concurrent senders in the attacks on memory.
const senders = 4

// attackMore forwards everything to a backend, logs everything, and exposes the Collector's internals.
const attackMore = `
exporters: {mooncake: {rotation: {max_size_mib: 8}, grace: 1s}}
extensions: {zpages: {endpoint: %q}}
service:
  extensions: [file_storage, health_check, zpages]
  pipelines:
    metrics: {receivers: [mooncake], processors: [memory_limiter], exporters: [otlp_grpc/jaeger]}
    logs: {receivers: [mooncake], processors: [memory_limiter], exporters: [otlp_grpc/jaeger]}
  telemetry:
    logs: {level: %s}
`

// TestAttackProcess makes each attack on the documented Collector, with GOMEMLIMIT set, from outside.
func TestAttackProcess(t *testing.T) { attackProcess(t, "debug", 1, 1) }

// TestAcceptanceAttack does so at full size: a million spans in one trace, 10 MB an attribute, a hundred thousand sessions as fast as they
// are accepted, and repeated attacks on memory; at both levels of logging.
func TestAcceptanceAttack(t *testing.T) {
	if !acceptance() {
		t.Skip("run this with make acceptance")
	}
	for _, level := range []string{"info", "debug"} {
		t.Run(level, func(t *testing.T) { attackProcess(t, level, 10, 20) })
	}
}

// attackProcess runs the table, then attacks memory from all senders at once, this many times each.
//
// The bound is on VmHWM, the most memory that the process ever had in RAM as Linux accounts for it, so that no peak falls
// between two samples. GOMEMLIMIT makes Go collect before it takes more from the system. It is not a bound by itself,
// because it frees no memory that is in use. The test shows that the use is bounded.
func attackProcess(t *testing.T, level string, scale, rounds int) {
	t.Helper()
	c := newCanaries()
	c.debug = level == "debug"
	dir := t.TempDir()
	pages := testport.Address(t)
	otelcol := configure(t, dir, settings{config: "otelcol-config.yaml", more: fmt.Sprintf(attackMore, pages, level)})
	otelcol.environment = append(otelcol.environment, "MOONLOOP_HASH_KEY="+c.word("hashkey")+strings.Repeat("k", 32),
		fmt.Sprintf("GOMEMLIMIT=%dMiB", limiterMiB), "JAEGER_ENDPOINT="+eavesdrop(t, c))
	p := otelcol.start(t)
	v := &victim{canaries: c, grpc: dial(t, otelcol.address).connection, http: otelcol.http, counts: func(t *testing.T) map[string]int64 {
		t.Helper()
		return otelcol.counters(t)
	}}
	v.run(t, &forge{t: t, canaries: c, scale: scale})
	v.malformed(t)
	table := p.memory(t, "VmHWM") >> 20
	refusals := v.storm(t, otelcol.address, rounds)
	honest := production(t, 1, 2048)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		v.honest++
		err := v.invoke(t, signalTraces, honest.next(v.honest, time.Now()))
		if err == nil {
			break
		}
		v.honest--
		if status.Code(err) != codes.Unavailable || time.Now().After(deadline) {
			t.Fatalf("an honest request after the storm: %v", err)
		}
	}
	otelcol.drain(t)
	counts := otelcol.counted(t) // memory_limiter refused some requests of the storm, so not all spans that came in become records
	for key := range refusals {
		if counts[refused+key] < refusals[key] {
			t.Errorf("%d requests were refused as %s, and %d are counted", refusals[key], key, counts[refused+key])
		}
	}
	peak, bound := p.memory(t, "VmHWM")>>20, int64(limiterMiB+requestMiB+senders*messageMiB+programMiB)
	t.Logf("peak RSS %d MiB after the table, %d MiB in all, bound %d MiB; now %d MiB; refused in the storm: %v; log level %s",
		table, peak, bound, p.memory(t, "VmRSS")>>20, refusals, level)
	if peak > bound {
		t.Errorf("the Collector took %d MiB, and the bound is %d MiB", peak, bound)
	}
	c.search(outMetrics, []byte(otelcol.scrape(t)))
	c.zpages(t, "http://"+pages)
	p.stop(t)
	v.files(t, dir)
	c.check(t, outForwarded, outJournal, outTrace, outAnswer)
}

var (
	counterLine = regexp.MustCompile(`^(otelcol_\w+)(?:\{([^}]*)\})? (\S+)\n$`)
	counterKind = regexp.MustCompile(`(reason|fault|kind|identity|dialect|key|attribute|limit|result)="([^"]*)"`)
)

// counted returns the Collector's own counters at this moment, named as in attacks.
func (c *collector) counted(t *testing.T) map[string]int64 {
	t.Helper()
	counts := map[string]int64{}
	for line := range strings.Lines(c.scrape(t)) {
		if strings.HasPrefix(line, "#") || strings.Contains(line, "_bucket{") {
			continue // matching takes its time
		}
		match := counterLine.FindStringSubmatch(line)
		if match == nil {
			continue
		}
		name, _ := shortName(match[1])
		for _, label := range counterKind.FindAllStringSubmatch(match[2], -1) {
			name += "/" + label[2]
		}
		if n, err := strconv.ParseFloat(match[3], 64); err == nil {
			counts[name] += int64(n)
		}
	}
	return counts
}

// counters returns the Collector's own counters once its queues are empty and their content is counted.
func (c *collector) counters(t *testing.T) map[string]int64 {
	t.Helper()
	c.drain(t)
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		counts, spans := c.counted(t), int64(0)
		for key, n := range counts {
			if strings.HasPrefix(key, "exporter_records/") || strings.HasPrefix(key, "exporter_dropped_spans/") {
				spans += n
			}
		}
		// A request that was removed from the queue is on its way to the journal.
		if spans == counts[received]+counts[carriers] || time.Now().After(deadline) {
			return counts
		}
	}
}

// storm sends the requests that need most memory from several senders at once, over separate connections, and returns the refused ones.
func (v *victim) storm(t *testing.T, address string, rounds int) map[string]int64 {
	t.Helper()
	f := &forge{t: t, canaries: v.canaries, scale: 1}
	large := f.spans(func(to ptrace.SpanSlice) { // 60 MiB of a prompt: refused if there is no room next to others
		f.request(to).Attributes().PutStr("gen_ai.prompt", f.long("prompt", 60<<20))
	})
	bombs := map[string][]byte{
		"empty spans": squeeze(t, testwire.Within(nil, 1)),
		"attributes":  squeeze(t, testwire.Within(repeat(9, 1<<20), 1, 2, 2)), // attributes that need 100 MiB: admitted, one or two at a time
		"deep":        squeeze(t, testwire.Within(testwire.Nested(300_000), 1, 2, 2, 9, 2)),
		"spans":       squeeze(t, testwire.Within(repeat(2, 30<<20), 1, 2)), // 60 MiB, for which there is no memory
		"large":       large,
	}
	var mu sync.Mutex
	refusals := map[string]int64{}
	var running sync.WaitGroup
	for range senders {
		plain, packed := dial(t, address).connection, dial(t, address, grpc.WithCompressor(squeezed{})).connection //nolint:staticcheck // gRPC compresses each request again
		running.Go(func() {
			for range rounds {
				for name, body := range bombs {
					to := packed // 60 MiB of the same text are 100 kB
					if name == "large" {
						to = plain
					}
					ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
					var reply []byte
					err := to.Invoke(ctx, methods[signalTraces], body, &reply, grpc.ForceCodecV2(asIs{}))
					cancel()
					v.search(outAnswer, []byte(fmt.Sprint(err)))
					reason := map[codes.Code]string{codes.ResourceExhausted: "too_large", codes.InvalidArgument: "too_deep"}[status.Code(err)]
					switch {
					case reason != "":
						mu.Lock()
						refusals[reason]++
						mu.Unlock()
					case err != nil && status.Code(err) != codes.Unavailable: // no room, or memory_limiter
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		})
	}
	running.Wait()
	if refusals["too_large"] < senders*int64(rounds) || refusals["too_deep"] != senders*int64(rounds) {
		t.Errorf("refused: %v", refusals)
	}
	return refusals
}

// repeat returns empty messages under a field number, many times.
func repeat(number byte, times int) []byte {
	return []byte(strings.Repeat(string([]byte{number<<3 | 2, 0}), times))
}

// squeeze compresses in pieces of 64 KiB; equal pieces are compressed once, since the race detector makes compression slow.
func squeeze(t *testing.T, body []byte) []byte {
	t.Helper()
	var out []byte
	done := map[string][]byte{}
	for piece := range slices.Chunk(body, 64<<10) {
		if done[string(piece)] == nil {
			var member bytes.Buffer
			w := gzip.NewWriter(&member)
			if _, err := w.Write(piece); err != nil {
				t.Fatal(err)
			}
			if err := w.Close(); err != nil {
				t.Fatal(err)
			}
			done[string(piece)] = member.Bytes()
		}
		out = append(out, done[string(piece)]...)
	}
	return out
}

// squeezed is the compressor for data that is already compressed.
type squeezed struct{}

// Type is what the server is told.
func (squeezed) Type() string { return "gzip" }

// Do writes it as it is.
func (squeezed) Do(w io.Writer, compressed []byte) error {
	_, err := w.Write(compressed)
	return err
}

// eavesdrop starts a backend that accepts what is forwarded, and searches its bytes, headers included.
func eavesdrop(t *testing.T, c *canaries) (address string) {
	t.Helper()
	address = testport.Address(t)
	listener, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.MaxRecvMsgSize(256<<20), grpc.ForceServerCodecV2(asIs{}), grpc.UnknownServiceHandler(
		func(_ any, stream grpc.ServerStream) error {
			var request []byte
			if err := stream.RecvMsg(&request); err != nil {
				return err
			}
			c.search(outForwarded, request)
			headers, _ := metadata.FromIncomingContext(stream.Context())
			c.search(outForwarded, fmt.Append(nil, headers))
			return stream.SendMsg([]byte{}) // all of it is accepted
		}))
	done := make(chan struct{})
	go func() { _ = server.Serve(listener); close(done) }()
	t.Cleanup(func() { server.Stop(); <-done })
	return address
}

var href = regexp.MustCompile(`href="?([^">\s]+)`)

// zpages searches the pages that show the Collector's internals, those of its own spans as far as they are linked.
func (c *canaries) zpages(t *testing.T, at string) {
	t.Helper()
	seen := map[string]bool{}
	todo := []string{"/debug/servicez", "/debug/pipelinez", "/debug/extensionz", "/debug/featurez", "/debug/tracez", "/debug/expvarz"}
	for len(todo) > 0 && len(seen) < 200 {
		path := strings.ReplaceAll(todo[0], "&amp;", "&")
		todo = todo[1:]
		if seen[path] {
			continue
		}
		seen[path] = true
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at+path, nil)
		if err != nil {
			continue
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			continue
		}
		page := get(t, at+path)
		c.search(outPages, []byte(page))
		for _, match := range href.FindAllStringSubmatch(page, -1) {
			switch link := match[1]; {
			case strings.HasPrefix(link, "?"):
				base, _, _ := strings.Cut(path, "?")
				todo = append(todo, base+link)
			case strings.HasPrefix(link, "/debug/"):
				todo = append(todo, link)
			case strings.HasPrefix(link, "tracez"):
				todo = append(todo, "/debug/"+link)
			}
		}
	}
	if len(seen) < 8 {
		t.Errorf("%d pages", len(seen))
	}
}
