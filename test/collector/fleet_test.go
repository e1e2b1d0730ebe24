// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/internal/testport"
	"github.com/moonloop/moonloop/internal/testprogram"
	"github.com/moonloop/moonloop/mooncake"
)

// fleetFolder returns the folder in which test/acceptance/fleet/install.sh has put Kafka and versitygw. Without it, the test is skipped.
func fleetFolder(t *testing.T) string {
	t.Helper()
	folder := os.Getenv("MOONLOOP_FLEET")
	if folder == "" {
		t.Skip("MOONLOOP_FLEET is not set: run this with make acceptance-fleet")
	}
	return folder
}

// fleetSpans returns the number of model requests to send.
func fleetSpans(t *testing.T) int {
	t.Helper()
	n, err := strconv.Atoi(os.Getenv("MOONLOOP_SPANS"))
	if err != nil {
		t.Fatalf("MOONLOOP_SPANS: %v", err)
	}
	return n
}

// manySpans is the number of spans above which they are sent in larger messages, so that the run ends within half an hour.
const manySpans = 100_000

// broker is a Kafka of one node, broker and controller in one.
type broker struct {
	dir, address string
	java         []string
}

const brokerProperties = `process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://%[1]s,CONTROLLER://%[2]s
advertised.listeners=PLAINTEXT://%[1]s
controller.listener.names=CONTROLLER
controller.quorum.voters=1@%[2]s
log.dirs=%[3]s
num.partitions=%[4]d
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
`

// newBroker formats the storage of a broker, whose topics have this many partitions.
func newBroker(t *testing.T, fleet, dir string, partitions int) *broker {
	t.Helper()
	b := &broker{dir: dir, address: testport.Address(t), java: []string{"-Xmx384m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", filepath.Join(fleet, "kafka", "*")}}
	properties := write(t, dir, "server.properties", fmt.Sprintf(brokerProperties, b.address, testport.Address(t), filepath.Join(dir, "kafka"), partitions))
	format := exec.CommandContext(t.Context(), "java", append(slices.Clone(b.java), "kafka.tools.StorageTool", "format", "-t", "moonloopAAAAAAAAAAAAAA", "-c", properties)...)
	if out, err := format.CombinedOutput(); err != nil {
		t.Fatalf("storage of the broker: %v\n%s", err, out)
	}
	b.java = append(b.java, "kafka.Kafka", properties)
	return b
}

func (b *broker) start(t *testing.T) *process {
	t.Helper()
	p := spawn(t, b.dir, "kafka", nil, "java", b.java...)
	p.listens(t, b.address)
	return p
}

// listens waits until a program accepts connections.
func (p *process) listens(t *testing.T, address string) {
	t.Helper()
	for deadline := time.Now().Add(2 * time.Minute); ; time.Sleep(20 * time.Millisecond) {
		connection, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
		if err == nil {
			_ = connection.Close()
			return
		}
		select {
		case <-p.done:
			t.Fatalf("%s ended: %v\n%s", p.log, p.cmd.ProcessState, p.tail())
		default:
		}
		if time.Now().After(deadline) {
			t.Fatalf("nobody listens on %s after 2 minutes\n%s", address, p.tail())
		}
	}
}

// arrivals are the spans in the growing journals below a folder. Each look reads what is new.
type arrivals struct {
	dir    string
	places map[string]journal.Place
	spans  map[mooncake.SpanRef]struct{}
}

func newArrivals(dir string) *arrivals {
	return &arrivals{dir, map[string]journal.Place{}, map[mooncake.SpanRef]struct{}{}}
}

func (a *arrivals) look(t *testing.T) {
	t.Helper()
	eachJournal(t, a.dir, func(name string, f *os.File, size int64) error {
		r := journal.NewReaderAt(name, f, size, a.places[name])
		err := eachRecord(r, func(d *journal.Decoder) { a.spans[d.Span] = struct{}{} })
		a.places[name] = r.Place()
		return err
	})
}

// eachJournal visits the journals below a folder.
func eachJournal(t *testing.T, dir string, visit func(name string, f *os.File, size int64) error) {
	t.Helper()
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // moved or removed meanwhile
		}
		if err != nil || entry.IsDir() || filepath.Ext(name) != ".journal" {
			return err
		}
		f, err := os.Open(name)
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		return visit(name, f, info.Size())
	})
	if err != nil {
		t.Fatal(err)
	}
}

// eachRecord visits the records of a journal. compile reports whether anything is damaged at the end.
func eachRecord(r *journal.Reader, visit func(*journal.Decoder)) error {
	for {
		_, d, err := r.NextEncoded()
		damage := (*journal.Damage)(nil)
		switch {
		case err == nil:
			visit(d)
		case errors.As(err, &damage):
		case errors.Is(err, io.EOF):
			return nil
		default:
			return err
		}
	}
}

// all waits until the journals have everything that was acknowledged.
func (a *arrivals) all(t *testing.T, acknowledged map[uint64]struct{}, limit time.Duration) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; time.Sleep(2 * time.Second) {
		a.look(t)
		lost := 0
		for n := range acknowledged {
			if _, there := a.spans[spanOf(n)]; !there {
				lost++
			}
		}
		if lost == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("after %v, %d of %d acknowledged spans are in no journal", limit, lost, len(acknowledged))
		}
	}
}

// compileKilled compiles the journals of a folder with a process that it kills, compiles them again, and checks that the trace has exactly
// one row for each acknowledged span, and no others.
func compileKilled(t *testing.T, dir, journals string, acknowledged map[uint64]struct{}, environment ...string) {
	t.Helper()
	trace := filepath.Join(dir, "trace.jsonl")
	args := []string{"compile", journals, "--out", trace}
	p := spawn(t, dir, "compile", environment, testprogram.File(t, "moonloop"), args...)
	select { // in the middle of the reading, or of what follows
	case <-time.After(time.Duration(len(acknowledged)) * time.Microsecond):
	case <-p.done:
		t.Fatalf("compile ended before it was killed: %v\n%s", p.cmd.ProcessState, p.tail())
	}
	p.kill()
	if _, err := os.Stat(trace); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a compile that was killed left a trace: %v", err)
	}
	started := time.Now()
	again := exec.CommandContext(t.Context(), testprogram.File(t, "moonloop"), append(args, "--json")...)
	again.Env = append(os.Environ(), environment...)
	out, err := again.Output()
	if err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	t.Logf("compiled %d requests in %.1f s", len(acknowledged), time.Since(started).Seconds())
	var result struct {
		Damage int `json:"damage_count"`
	}
	if err := json.Unmarshal(out, &result); err != nil || result.Damage > 0 {
		t.Errorf("%d damaged places: %v\n%s", result.Damage, err, out)
	}
	meta, err := mooncake.LoadMeta(trace)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(trace)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	rows := map[mooncake.SpanRef]int{}
	for r := mooncake.NewReader(f, mooncake.ReaderOptions{Name: trace, Strict: true, BlockSize: meta.BlockSize, FineBlockSize: meta.FineBlockSize}); ; {
		row, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		rows[row.OTel]++
	}
	lost, twice := 0, 0
	for n := range acknowledged {
		switch rows[spanOf(n)] {
		case 0:
			lost++
		case 1:
		default:
			twice++
		}
	}
	if lost > 0 || twice > 0 || len(rows) != len(acknowledged) {
		t.Errorf("of %d acknowledged spans, %d are no row, %d are several rows; %d spans have rows", len(acknowledged), lost, twice, len(rows))
	}
}

// killable is one of several programs that are killed with kill -9 in turn, at random moments, and started again.
type killable struct {
	name  string
	run   func(*testing.T) *process
	under *process
	kills int
}

// sentUnderKills sends at least this many requests, and meanwhile kills all of the programs in turn, each at least three times. Requests
// keep arriving below a folder: the first kill waits for that, or it would hit nothing.
func sentUnderKills(t *testing.T, address string, arriving *arrivals, spans int, programs ...*killable) map[uint64]struct{} {
	t.Helper()
	for _, k := range programs {
		k.under = k.run(t)
	}
	started := time.Now()
	together := 20
	if spans > manySpans {
		together = 100 // a request is a message, which the sender's queue writes to a file, and for which the reader waits for its disk
	}
	c := startClients(t, address, production(t, together, 2048), 2)
	for deadline := time.Now().Add(2 * time.Minute); len(arriving.spans) == 0; time.Sleep(100 * time.Millisecond) {
		arriving.look(t)
		if time.Now().After(deadline) {
			t.Fatal("nothing arrives in 2 minutes")
		}
	}
	for i := 0; i < 3*len(programs) || c.count() < spans; i++ {
		pause := 2 * time.Second
		if i >= 3*len(programs) {
			pause = 20 * time.Second // in a long run, most of the time is for work
		}
		time.Sleep(rand.N(pause)) // amid whatever it does
		k := programs[i%len(programs)]
		k.under.kill()
		k.under = k.run(t)
		k.kills++
	}
	acknowledged, resent := c.stop()
	for _, k := range programs {
		t.Logf("%s: killed %d times", k.name, k.kills)
	}
	t.Logf("%d spans acknowledged in %.1f s, %d requests sent again", len(acknowledged), time.Since(started).Seconds(), resent)
	return acknowledged
}

// noteCopies records duplicates, which show that kills hit something.
func noteCopies(t *testing.T, dir string) {
	t.Helper()
	var files, bytes, records int64
	spans := map[mooncake.SpanRef]struct{}{}
	eachJournal(t, dir, func(name string, f *os.File, size int64) error {
		files, bytes = files+1, bytes+size
		return eachRecord(journal.NewReader(name, f), func(d *journal.Decoder) {
			records++
			spans[d.Span] = struct{}{}
		})
	})
	t.Logf("%d spans in %d journals of %d bytes, %d records delivered more than once", len(spans), files, bytes, records-int64(len(spans)))
}

// sizes are figures of the extension, in one process.
var sizes = regexp.MustCompile(`(?m)^otelcol_extension_mooncake_encoding_(size_bytes|records|messages)_total\{[^}]*direction="written"[^}]*\} (\S+)$`)

// TestAcceptanceFleetKafka sends spans over a Kafka from one Collector to another, with kill -9 of broker, both Collectors and compile in
// turn. What was acknowledged is in the trace, once.
func TestAcceptanceFleetKafka(t *testing.T) {
	fleet, spans := fleetFolder(t), fleetSpans(t)
	dir := t.TempDir()
	kafka := newBroker(t, fleet, dir, 12)
	near, far := filepath.Join(dir, "near"), filepath.Join(dir, "far")
	for _, folder := range []string{near, far} {
		if err := os.Mkdir(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	more := "retry_on_failure: {initial_interval: 100ms, max_interval: 1s}"
	if spans > manySpans { // each span is a trace: with a message for each, the disk of the reader is what is measured
		more += ", partition_traces_by_id: false"
	}
	sender := configure(t, near, settings{config: "examples/capture/kafka.yaml", more: "exporters: {kafka: {" + more + "}}"})
	sender.environment = append(sender.environment, "KAFKA_BROKER="+kafka.address)
	config, err := filepath.Abs(filepath.Join(root, "examples/capture/from-kafka.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	host, port := split(t, testport.Address(t))
	own := write(t, far, "ports.yaml", fmt.Sprintf("service: {telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: %s, port: %s}}}}]}}}\n", host, port))
	writer := func(t *testing.T) *process {
		t.Helper()
		p := launch(t, far, []string{"MOONLOOP_DIR=" + far, "KAFKA_BROKER=" + kafka.address}, config, own)
		p.ready(t)
		return p
	}
	programs := []*killable{{name: "broker", run: kafka.start}, {name: "sending Collector", run: sender.start}, {name: "writing Collector", run: writer}}
	written := newArrivals(far)
	acknowledged := sentUnderKills(t, sender.address, written, spans, programs...)
	started := time.Now()
	written.all(t, acknowledged, 20*time.Minute)
	t.Logf("all in journals %.1f s later", time.Since(started).Seconds())
	noteCopies(t, far)
	t.Logf("figures of the sending Collector since its last start: %q", sizes.FindAllString(sender.scrape(t), -1))
	noText(t, filepath.Join(dir, "kafka"))
	programs[2].under.stop(t)
	programs[1].under.stop(t)
	compileKilled(t, dir, far, acknowledged)
}

// TestFileOfMessages: the output of the exporter file with our encoding is a journal that contains all messages.
func TestFileOfMessages(t *testing.T) {
	dir := t.TempDir()
	c := configure(t, dir, settings{config: "examples/capture/laptop.yaml", more: fmt.Sprintf(`
extensions: {mooncake_encoding: }
exporters: {file: {path: %s, encoding: mooncake_encoding}}
service: {extensions: [mooncake_encoding, health_check], pipelines: {traces: {exporters: [file]}}}
`, filepath.Join(dir, "messages.journal"))})
	p := c.start(t)
	l, to := production(t, 20, 2048), dial(t, c.address)
	for first := uint64(1); first <= 60; first += 20 {
		if err := to.export(t.Context(), l.next(first, time.Now())); err != nil {
			t.Fatal(err)
		}
	}
	p.stop(t)
	noText(t, dir)
	got := compile(t, dir)
	if len(got.rows) != 60 || got.files != 1 || got.result.DamageCount > 0 || got.result.Torn.Records > 0 {
		t.Errorf("%d rows of %d journals, %d places damaged, %d torn; want 60 of 1, and all whole",
			len(got.rows), got.files, got.result.DamageCount, got.result.Torn.Records)
	}
}

// noText requires that no file below a folder has a word of the prompts.
func noText(t *testing.T, dir string) {
	t.Helper()
	files := 0
	err := filepath.WalkDir(dir, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(name)
		if err == nil && bytes.Contains(content, []byte("quick brown fox")) {
			t.Errorf("%s has a prompt", name)
		}
		files++
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("%d files: %v", files, err)
	}
}

// startS3 starts an S3 server that keeps the objects of buckets in files, and its metadata next to them: without that, it cannot assemble
// the parts of an upload of more than 5 MiB.
func startS3(t *testing.T, fleet, dir, address, buckets string) *process {
	t.Helper()
	known := filepath.Join(dir, "known")
	if err := os.MkdirAll(known, 0o700); err != nil {
		t.Fatal(err)
	}
	p := spawn(t, dir, "s3", []string{"ROOT_ACCESS_KEY=test", "ROOT_SECRET_KEY=of-a-test"}, filepath.Join(fleet, "versitygw"), "--port", address, "--quiet", "posix", "--sidecar", known, buckets)
	p.listens(t, address)
	return p
}

// TestAcceptanceFleetS3 writes spans to objects of an S3 server, with kill -9 of server, Collector and compile in turn.
func TestAcceptanceFleetS3(t *testing.T) {
	fleet, spans := fleetFolder(t), fleetSpans(t)
	dir := t.TempDir()
	near, buckets := filepath.Join(dir, "near"), filepath.Join(dir, "buckets")
	for _, folder := range []string{near, filepath.Join(buckets, "moonloop")} { // a folder is a bucket
		if err := os.MkdirAll(folder, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	address := testport.Address(t)
	server := func(t *testing.T) *process {
		t.Helper()
		return startS3(t, fleet, dir, address, buckets)
	}
	sender := configure(t, near, settings{config: "examples/capture/s3.yaml", more: "exporters: {awss3: {retry_on_failure: {initial_interval: 100ms, max_interval: 1s}, sending_queue: {batch: {flush_timeout: 1s}}}}"})
	sender.environment = append(sender.environment, "S3_ENDPOINT=http://"+address, "S3_PATH_STYLE=true", "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=of-a-test")
	programs := []*killable{{name: "S3 server", run: server}, {name: "Collector", run: sender.start}}
	stored := newArrivals(buckets)
	acknowledged := sentUnderKills(t, sender.address, stored, spans, programs...)
	started := time.Now()
	stored.all(t, acknowledged, 10*time.Minute)
	t.Logf("all in objects %.1f s later", time.Since(started).Seconds())
	noteCopies(t, buckets)
	noText(t, buckets)
	programs[1].under.stop(t)
	compileKilled(t, dir, "s3://moonloop/journals", acknowledged, "AWS_ENDPOINT_URL_S3=http://"+address, "AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=of-a-test")
}
