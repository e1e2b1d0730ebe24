// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

// This file measures the cost of a request on its way from production's telemetry to a replay, for three shapes of traffic, with the
// configurations of examples/capture, a real S3 server and a real Kafka. plan_page_test.go makes the tables of docs/plan.md from the costs.

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.opentelemetry.io/collector/pdata/pcommon"
	"go.opentelemetry.io/collector/pdata/ptrace"
	"go.opentelemetry.io/collector/pdata/ptrace/ptraceotlp"

	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/internal/testprogram"
	"github.com/moonloop/moonloop/mooncake"
)

// planShape is a kind of traffic.
type planShape struct {
	name   string
	args   []string // of moonloop generate; nil: the public conversation trace
	common int      // tokens that all prompts begin with, if those are less than a block
	rate   float64  // of the replay, requests/s: two cores serve it, too
	count  int      // requests of the replay
}

var planShapes = []planShape{
	{name: "chat", rate: 60, count: 1200},
	{"agent", []string{
		"--rows", "6000", "--rate", "20", "--system-prompt", "6000", "--turns", "20", "--user", "500,0.8,8000", "--output", "150,0.6,1000", "--think", "3,0.5", "--sessions",
	}, 0, 80, 1600},
	{"classification", []string{"--rows", "12000", "--rate", "200", "--system-prompt", "400", "--turns", "1", "--user", "90,0.5", "--output", "10,0.3"}, 400, 800, 16000},
}

// planIdentities are what the telemetry says about prompts, and the recorded share of the conversations.
var planIdentities = []struct {
	name  string
	block int // tokens; 0: their text
	share string
}{{"text", 0, "1"}, {"512", 512, "1"}, {"16", 16, "1"}, {"text, 1 %", 0, "0.01"}}

// planCapture is the cost of a request until it is in a trace. CPU is in µs, sizes are in bytes.
type planCapture struct {
	OTLP      float64 `json:"otlp_bytes"`
	ToS3      float64 `json:"to_s3_cpu"`
	Object    float64 `json:"object_bytes"`
	Compile   float64 `json:"compile_cpu"`
	JSONL     float64 `json:"jsonl_bytes"`
	Zstd      float64 `json:"zst_bytes"`
	Parquet   float64 `json:"parquet_bytes"`
	ToKafka   float64 `json:"to_kafka_cpu"`
	Message   float64 `json:"kafka_bytes"`
	FromKafka float64 `json:"from_kafka_cpu"`
}

// planReplay is the cost of a request in a replay.
type planReplay struct {
	CPU     float64 `json:"cpu"`
	Up      float64 `json:"sent_bytes"`
	Down    float64 `json:"received_bytes"`
	Seconds float64 `json:"seconds"` // that its stream is open
	Streams float64 `json:"streams"` // open at once, at most
}

type planCosts struct {
	Requests int                    `json:"requests"`
	Input    float64                `json:"input_tokens"`
	Output   float64                `json:"output_tokens"`
	Capture  map[string]planCapture `json:"capture"`
	Replay   planReplay             `json:"replay"`
}

// planMeasured is testdata/plan-measured.json.
type planMeasured struct {
	Date, Machine string
	// Others is the number of cores that other programs used during the measurement, on average; nil in older measurements.
	Others *float64 `json:"cores_of_others,omitempty"`
	Shapes map[string]planCosts
}

// TestAcceptancePlan measures all shapes, and writes testdata/plan-measured.json.
func TestAcceptancePlan(t *testing.T) {
	fleet := fleetFolder(t)
	others := otherWork(t)
	all := planMeasured{Date: time.Now().UTC().Format(time.DateOnly), Machine: machine(t), Shapes: map[string]planCosts{}}
	for _, s := range planShapes {
		dir := t.TempDir()
		trace := filepath.Join(dir, "trace.jsonl")
		if s.args == nil {
			if err := os.Symlink(os.Getenv("MOONLOOP_TRACE"), trace); err != nil {
				t.Fatal(err)
			}
		} else {
			moonloopCPU(t, dir, append([]string{"generate", "--out", trace}, s.args...)...)
		}
		rows := planRows(t, trace)
		c := planCosts{Requests: len(rows), Capture: map[string]planCapture{}}
		for _, r := range rows {
			c.Input += float64(r.InputLength.V) / float64(len(rows))
			c.Output += float64(r.OutputLength.V) / float64(len(rows))
		}
		for _, identity := range planIdentities {
			load := s.telemetry(t, rows, identity.block)
			var k planCapture
			for _, body := range load {
				k.OTLP += float64(len(body)) / float64(len(rows))
			}
			planS3(t, fleet, load, len(rows), identity.share, &k)
			if identity.share == "1" {
				planKafka(t, fleet, load, len(rows), &k)
			}
			t.Logf("%s, %s: %+v", s.name, identity.name, k)
			c.Capture[identity.name] = k
		}
		c.Replay = s.replay(t, dir, trace)
		t.Logf("%s: %+v", s.name, c.Replay)
		all.Shapes[s.name] = c
	}
	cores := others()
	all.Others = &cores
	content, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		t.Fatal(err)
	}
	write(t, "testdata", "plan-measured.json", string(content)+"\n")
}

func machine(t *testing.T) string {
	t.Helper()
	content, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		t.Fatal(err)
	}
	_, model, _ := strings.Cut(string(content), "model name\t: ")
	model, _, _ = strings.Cut(model, "\n")
	return fmt.Sprintf("%d cores of %s", strings.Count(string(content), "\nprocessor")+1, model)
}

// otherWork returns a function that returns how many cores have been in use since, on average, by programs other than this one and its
// children. Only children that have ended count as such.
func otherWork(t *testing.T) func() float64 {
	t.Helper()
	used := func() (all, own time.Duration) {
		content, err := os.ReadFile("/proc/stat")
		if err != nil {
			t.Fatal(err)
		}
		var user, nice, system, idle, iowait, irq, softirq, steal int64
		if _, err := fmt.Sscanf(string(content), "cpu %d %d %d %d %d %d %d %d", &user, &nice, &system, &idle, &iowait, &irq, &softirq, &steal); err != nil {
			t.Fatalf("/proc/stat: %v", err)
		}
		for _, who := range []int{syscall.RUSAGE_SELF, syscall.RUSAGE_CHILDREN} {
			var u syscall.Rusage
			if err := syscall.Getrusage(who, &u); err != nil {
				t.Fatal(err)
			}
			own += time.Duration(u.Utime.Nano() + u.Stime.Nano())
		}
		return time.Duration(user+nice+system+irq+softirq+steal) * cpuTick, own
	}
	begin := time.Now()
	all, own := used()
	return func() float64 {
		allNow, ownNow := used()
		return max(0, ((allNow-all)-(ownNow-own)).Seconds()/time.Since(begin).Seconds())
	}
}

func planRows(t *testing.T, trace string) (rows []*mooncake.Row) {
	t.Helper()
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	o := mooncake.ReaderOptions{Name: trace}
	meta, err := mooncake.LoadMeta(trace)
	if err != nil {
		t.Fatal(err)
	}
	if meta != nil {
		o.BlockSize, o.FineBlockSize = meta.BlockSize, meta.FineBlockSize
	}
	for r := mooncake.NewReader(f, o); ; {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			return rows
		}
		if err != nil {
			t.Fatal(err)
		}
		own := *row
		own.HashIDs = append([]uint64(nil), row.HashIDs...)
		rows = append(rows, &own)
	}
}

// telemetry returns the requests of a trace as production's instrumentation sends them: with the text of the prompt, or with an engine's
// hashes of its blocks. A message of OTLP has 20 spans, or 2 MB.
func (s *planShape) telemetry(t *testing.T, rows []*mooncake.Row, block int) (load [][]byte) {
	t.Helper()
	begin := time.Now().Add(-2 * time.Hour)
	td, size := ptrace.NewTraces(), 0
	flush := func() {
		body, err := ptraceotlp.NewExportRequestFromTraces(td).MarshalProto()
		if err != nil {
			t.Fatal(err)
		}
		load, td, size = append(load, body), ptrace.NewTraces(), 0
	}
	for i, r := range rows {
		if td.SpanCount() == 0 {
			resource := td.ResourceSpans().AppendEmpty()
			resource.Resource().Attributes().PutStr("service.name", "shop")
			resource.ScopeSpans().AppendEmpty()
		}
		span := td.ResourceSpans().At(0).ScopeSpans().At(0).Spans().AppendEmpty()
		ref := spanOf(uint64(i) + 1)
		span.SetTraceID(pcommon.TraceID(ref.TraceID))
		span.SetSpanID(pcommon.SpanID(ref.SpanID))
		span.SetName("chat llama-3.1-8b")
		span.SetKind(ptrace.SpanKindClient)
		at := begin.Add(time.Duration(r.Timestamp.V * 1e6))
		span.SetStartTimestamp(pcommon.NewTimestampFromTime(at))
		span.SetEndTimestamp(pcommon.NewTimestampFromTime(at.Add(time.Duration(r.OutputLength.V+5) * 20 * time.Millisecond)))
		a := span.Attributes()
		a.PutStr("gen_ai.operation.name", "chat")
		a.PutStr("gen_ai.provider.name", "openai")
		a.PutStr("gen_ai.request.model", "llama-3.1-8b")
		a.PutStr("server.address", "engine.internal")
		a.PutStr("gen_ai.response.id", fmt.Sprintf("chatcmpl-%032x", i))
		a.PutInt("gen_ai.usage.input_tokens", r.InputLength.V)
		a.PutInt("gen_ai.usage.output_tokens", r.OutputLength.V)
		a.PutEmptySlice("gen_ai.response.finish_reasons").AppendEmpty().SetStr("stop")
		if r.SessionID != "" {
			a.PutStr("gen_ai.conversation.id", r.SessionID)
		}
		if block == 0 {
			text := s.messages(r)
			a.PutStr("gen_ai.input.messages", text)
			size += len(text)
		} else {
			a.PutStr("mooncake.identity", "engine")
			a.PutStr("mooncake.hash.domain", "0a1b2c3d")
			a.PutInt("mooncake.block_size", int64(block))
			ids := a.PutEmptySlice("mooncake.hash_ids")
			for at := 0; at+block <= int(r.InputLength.V); at += block { // engines hash full blocks
				ids.AppendEmpty().SetInt(int64(s.value(r, at)))
				size += 12
			}
		}
		if td.SpanCount() == 20 || size > 2<<20 {
			flush()
		}
	}
	if td.SpanCount() > 0 {
		flush()
	}
	return load
}

// value returns a number for a token of a row's prompt, which is the same in all prompts that share the token's block.
func (s *planShape) value(r *mooncake.Row, token int) uint64 {
	id := uint64(0)
	if n := token / mooncake.BlockSize; token >= s.common && n < len(r.HashIDs) {
		id = 1 + r.HashIDs[n]
	}
	return xxhash.Sum64(binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(nil, id), uint64(token)))
}

// messages returns the prompt of a row as messages of 4 bytes a token. A message has a block of the trace; an agent's messages are calls
// of a tool and their results.
func (s *planShape) messages(r *mooncake.Row) string {
	const letters = "abcdefghijklmnopqrstuvwxyzabcdef"
	var b strings.Builder
	b.Grow(5 * int(r.InputLength.V))
	part := func(token int) (before, after string) {
		switch n := token / mooncake.BlockSize; {
		case token == 0:
			return `{"role":"system","parts":[{"type":"text","content":"`, `"}]}`
		case s.name == "agent" && n%2 == 0:
			return fmt.Sprintf(`{"role":"tool","parts":[{"type":"tool_call_response","id":"call_%d","response":"`, n), `"}]}`
		case s.name == "agent":
			return fmt.Sprintf(`{"role":"assistant","parts":[{"type":"tool_call","id":"call_%d","name":"read_file","arguments":{"path":"`, n+1), `"}}]}`
		case n%2 == 0:
			return `{"role":"assistant","parts":[{"type":"text","content":"`, `"}]}`
		default:
			return `{"role":"user","parts":[{"type":"text","content":"`, `"}]}`
		}
	}
	b.WriteByte('[')
	for token, after := 0, ""; ; token++ {
		if token%mooncake.BlockSize == 0 || token == int(r.InputLength.V) {
			b.WriteString(after)
			if token == int(r.InputLength.V) {
				b.WriteByte(']')
				return b.String()
			}
			if token > 0 {
				b.WriteByte(',')
			}
			var before string
			before, after = part(token)
			b.WriteString(before)
		}
		v := s.value(r, token)
		b.WriteByte(letters[v&31])
		b.WriteByte(letters[v>>5&31])
		b.WriteByte(letters[v>>10&31])
		b.WriteByte(' ')
	}
}

// sendAll sends messages of OTLP, and waits until all spans are in journals below a folder, or, without a folder, until the Collector's
// queue is empty. It returns the Collector's CPU time meanwhile for each request, in µs.
func sendAll(t *testing.T, c *collector, p *process, load [][]byte, requests int, below string) float64 {
	t.Helper()
	to, cpu := dial(t, c.address), p.cpu(t)
	for _, body := range load {
		if err := to.export(t.Context(), body); err != nil {
			t.Fatal(err)
		}
	}
	if below == "" {
		time.Sleep(7 * time.Second) // longer than a batch waits: querying the queue's length costs the Collector time, too
		c.drain(t)
	} else {
		planArrived(t, below, requests)
	}
	return perRequest(p.cpu(t)-cpu, requests)
}

// perRequest returns the CPU time for each request, in µs.
func perRequest(cpu time.Duration, requests int) float64 {
	return float64(cpu.Nanoseconds()) / 1e3 / float64(requests)
}

// planArrived waits until this many spans are in journals below a folder.
func planArrived(t *testing.T, below string, want int) {
	t.Helper()
	stored := newArrivals(below)
	for deadline := time.Now().Add(5 * time.Minute); len(stored.spans) < want; time.Sleep(500 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%d of %d spans are in journals below %s", len(stored.spans), want, below)
		}
		stored.look(t)
	}
}

// planS3 captures to an S3 server, and compiles what is there.
func planS3(t *testing.T, fleet string, load [][]byte, requests int, share string, k *planCapture) {
	t.Helper()
	dir := t.TempDir()
	buckets, address := filepath.Join(dir, "buckets"), testport.Address(t)
	if err := os.MkdirAll(filepath.Join(buckets, "moonloop"), 0o700); err != nil {
		t.Fatal(err)
	}
	server := startS3(t, fleet, dir, address, buckets)
	c := configure(t, dir, settings{config: "examples/capture/s3.yaml"})
	c.environment = append(c.environment, "S3_ENDPOINT=http://"+address, "S3_PATH_STYLE=true", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=of-a-test", "MOONLOOP_SAMPLE="+share)
	p := c.start(t)
	if share != "1" { // without a trunk list, prompts with the same beginning are kept or dropped together: the cost is the same
		k.ToS3 = sendAll(t, c, p, load, requests, "")
		p.stop(t)
		return
	}
	k.ToS3 = sendAll(t, c, p, load, requests, buckets)
	p.stop(t)
	server.kill()
	k.Object = treeSize(t, buckets, ".journal") / float64(requests)
	trace := filepath.Join(dir, "compiled.jsonl")
	k.Compile = perRequest(moonloopCPU(t, dir, "compile", buckets, "--out", trace), requests)
	if rows := planRows(t, trace); len(rows) != requests {
		t.Fatalf("%d rows of %d requests", len(rows), requests)
	}
	for name, bytes := range map[string]*float64{"compiled.jsonl": &k.JSONL, "packed.jsonl.zst": &k.Zstd, "columns.parquet": &k.Parquet} {
		if out := filepath.Join(dir, name); out != trace {
			moonloopCPU(t, dir, "transform", trace, "--out", out)
		}
		*bytes = treeSize(t, dir, name) / float64(requests)
	}
}

// planKafka captures to a Kafka and from it, with a message for 100 spans or more.
func planKafka(t *testing.T, fleet string, load [][]byte, requests int, k *planCapture) {
	t.Helper()
	dir := t.TempDir()
	near, far := filepath.Join(dir, "near"), filepath.Join(dir, "far")
	if err := errors.Join(os.Mkdir(near, 0o700), os.Mkdir(far, 0o700)); err != nil {
		t.Fatal(err)
	}
	kafka := newBroker(t, fleet, dir, 12)
	broker := kafka.start(t)
	c := configure(t, near, settings{config: "examples/capture/kafka.yaml", more: "exporters: {kafka: {partition_traces_by_id: false}}"})
	c.environment = append(c.environment, "KAFKA_BROKER="+kafka.address)
	p := c.start(t)
	k.ToKafka = sendAll(t, c, p, load, requests, "")
	p.stop(t)
	config, err := filepath.Abs(filepath.Join(root, "examples/capture/from-kafka.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	host, port := split(t, testport.Address(t))
	own := write(t, far, "ports.yaml", fmt.Sprintf("service: {telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]}}}\n", host, port))
	reader := launch(t, far, []string{"MOONLOOP_DIR=" + far, "KAFKA_BROKER=" + kafka.address}, config, own)
	reader.ready(t)
	planArrived(t, far, requests)
	k.FromKafka = perRequest(reader.cpu(t), requests)
	reader.stop(t)
	broker.kill()
	k.Message = treeSize(t, filepath.Join(dir, "kafka"), ".log", "moonloop-") / float64(requests)
}

// treeSize returns the bytes of the files below a folder whose names have this ending, and whose paths contain all texts.
func treeSize(t *testing.T, dir, suffix string, has ...string) (sum float64) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(name, suffix) {
			return err
		}
		for _, text := range has {
			if !strings.Contains(name, text) {
				return nil
			}
		}
		info, err := entry.Info()
		if err == nil {
			sum += float64(info.Size())
		}
		return err
	})
	if err != nil || sum == 0 {
		t.Fatalf("%v bytes of *%s below %s: %v", sum, suffix, dir, err)
	}
	return sum
}

// moonloopCPU runs the command, and returns its CPU time.
func moonloopCPU(t *testing.T, dir string, args ...string) time.Duration {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), testprogram.File(t, "moonloop"), args...)
	cmd.Dir = dir
	out, err := cmd.CombinedOutput()
	if status := cmd.ProcessState; err != nil && (status == nil || status.ExitCode() != 3) { // 3: a busy machine made the measurement invalid
		t.Fatalf("moonloop %v: %v\n%s", args, err, out)
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()
}

// replay replays a fifth of the shape's requests, and then all, at one rate, on a simulator that streams 50 tokens/s. The cost of a
// request is that of the additional requests, without the start.
func (s *planShape) replay(t *testing.T, dir, trace string) (r planReplay) {
	t.Helper()
	address := testport.Address(t)
	engine := spawn(t, dir, "engine", nil, testprogram.File(t, "moonloop"), "simulate", "--listen", address, "--prefill", "50ms", "--prefill-per-token", "20us", "--decode", "20ms")
	engine.listens(t, address)
	var cpu [2]time.Duration
	out := filepath.Join(dir, "run")
	for i, n := range []int{s.count / 5, s.count} {
		cpu[i] = moonloopCPU(t, dir, "replay", trace, "--url", "http://"+address, "--model", "sim", "--endpoint", "completions", "--prompt", "tokens", "--open-loop", "--max-requests", strconv.Itoa(n),
			"--request-rate", fmt.Sprint(s.rate), "--progress", "none", "--out", out, "--force")
	}
	engine.kill()
	r.CPU = perRequest(cpu[1]-cpu[0], s.count-s.count/5)
	content, err := os.ReadFile(filepath.Join(out, "requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	n := 0.
	for line := range strings.Lines(string(content)) {
		var one struct {
			Result struct {
				Outcome  string
				Sent     float64 `json:"bytes_sent"`
				Received float64 `json:"bytes_read"`
				Latency  float64 `json:"latency_ms"`
			}
		}
		if err := json.Unmarshal([]byte(line), &one); err != nil || one.Result.Outcome != "served" {
			t.Fatalf("%v: %.300s", err, line)
		}
		n++
		r.Up, r.Down, r.Seconds = r.Up+one.Result.Sent, r.Down+one.Result.Received, r.Seconds+one.Result.Latency/1e3
	}
	r.Up, r.Down, r.Seconds = r.Up/n, r.Down/n, r.Seconds/n
	var summary struct {
		Peak struct{ Avg float64 } `json:"peak_concurrency"`
	}
	if content, err = os.ReadFile(filepath.Join(out, "summary.json")); err == nil {
		err = json.Unmarshal(content, &summary)
	}
	if err != nil {
		t.Fatal(err)
	}
	r.Streams = summary.Peak.Avg
	return r
}
