// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package service

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/moonloop/moonloop/agent"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/internal/simulator"
)

const token = "a-token-of-enough-letters"

// short is a trace that ends at once; long is one that no test waits for.
const (
	short = `{"timestamp": 0, "input_length": 600, "output_length": 4, "hash_ids": [0, 1]}` + "\n"
	long  = short + `{"timestamp": 3600000, "input_length": 600, "output_length": 4, "hash_ids": [0, 2]}` + "\n"
)

// bench is a running service, its engine and its client.
type bench struct {
	*testing.T
	url, engine, folder, traces string
	service                     *Service
	stop                        context.CancelFunc
	served                      chan error

	mu  sync.Mutex
	log []string
}

// newBench starts a service. The functions in change may change its configuration.
func newBench(t *testing.T, change ...func(*Config)) *bench {
	t.Helper()
	engine, err := simulator.New(simulator.Config{Models: []string{"sim"}})
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(engine)
	b := &bench{T: t, engine: server.URL, folder: filepath.Join(t.TempDir(), "runs"), traces: t.TempDir()}
	for name, content := range map[string]string{"short.jsonl": short, "long.jsonl": long, "sub/short.jsonl": short} {
		name = filepath.Join(b.traces, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o700), os.WriteFile(name, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(t.TempDir(), "outside"), filepath.Join(b.traces, "link.jsonl")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.end()
		server.Close()
		if err := engine.Close(); err != nil {
			t.Error(err)
		}
		http.DefaultClient.CloseIdleConnections()
		goleak.VerifyNone(t)
	})
	b.begin(change...)
	return b
}

// begin starts a service with the folders of the bench.
func (b *bench) begin(change ...func(*Config)) {
	b.Helper()
	target, err := ParseTarget(b.engine)
	if err != nil {
		b.Fatal(err)
	}
	cfg := Config{
		Folder: b.folder, Traces: b.traces, Targets: Targets{target}, Token: token,
		MaxRuns: 1, KeepRuns: 10, MaxUpload: 1 << 20, MaxDisk: 64 << 20,
		Options: []Option{{Name: "speedup", Type: "number"}},
		Prepare: prepare,
		Version: "test",
		Log: func(text string) {
			b.mu.Lock()
			defer b.mu.Unlock()
			b.log = append(b.log, text)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	if b.service, err = New(cfg); err != nil {
		b.Fatal(err)
	}
	listener, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	b.url = "http://" + listener.Addr().String()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.Context()))
	b.stop, b.served = cancel, make(chan error, 1)
	go func(s *Service, served chan<- error) {
		err := s.Serve(ctx, listener, &http.Server{})
		s.Close()
		served <- err
	}(b.service, b.served)
}

// end stops the service as a signal would.
func (b *bench) end() {
	b.Helper()
	if b.stop == nil {
		return
	}
	b.stop()
	b.stop = nil
	if err := <-b.served; err != nil {
		b.Error(err)
	}
}

// prepare accepts one option, speedup.
func prepare(_ context.Context, base agent.Config, options map[string]json.RawMessage) (Prepared, error) {
	p := Prepared{Config: base, Options: make(map[string]any)}
	p.Config.Target.CacheBlock, p.Config.Prompt.Overhead = 512, 1
	for name, value := range options {
		if name != "speedup" || json.Unmarshal(value, &p.Config.Schedule.Speedup) != nil {
			return p, fmt.Errorf("%s: a run has no such option", name)
		}
		p.Options[name] = value
	}
	return p, p.Config.Validate()
}

// answered is what a client got.
type answered struct {
	status int
	header http.Header
	body   string
}

// do sends a request with the token; further strings are headers and their values.
func (b *bench) do(method, path, body string, header ...string) answered {
	b.Helper()
	r, err := http.NewRequestWithContext(b.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	content, err := io.ReadAll(res.Body)
	if err != nil {
		b.Fatal(err)
	}
	return answered{res.StatusCode, res.Header, string(content)}
}

// refused requires a problem with a status and a text.
func (b *bench) refused(a answered, status int, text string) {
	b.Helper()
	var p problem
	if err := json.Unmarshal([]byte(a.body), &p); err != nil || a.header.Get("Content-Type") != "application/problem+json" {
		b.Errorf("%d %s is not a problem: %v", a.status, a.body, err)
	}
	if a.status != status || p.Status != status || !strings.Contains(p.Detail, text) {
		b.Errorf("got %d %q, want %d and %q", a.status, p.Detail, status, text)
	}
	if strings.Contains(a.body, b.folder) || strings.Contains(a.body, b.traces) || strings.Contains(a.body, token) {
		b.Errorf("%s names a folder of the service, or its token", a.body)
	}
}

// run reads a run from an answer.
func (b *bench) run(a answered, status int) (it Run) {
	b.Helper()
	if a.status != status {
		b.Fatalf("got %d %s, want %d", a.status, a.body, status)
	}
	if err := json.Unmarshal([]byte(a.body), &it); err != nil {
		b.Fatal(err)
	}
	return it
}

// start starts a run of a trace.
func (b *bench) start(trace string) Run {
	b.Helper()
	it := b.run(b.do("POST", "/v1/runs", fmt.Sprintf(`{"trace": %q}`, trace)), http.StatusCreated)
	if it.State != Starting || it.Trace != trace {
		b.Errorf("the run starts as %+v", it)
	}
	return it
}

// event is an event of a run.
type event struct {
	name string
	it   Run
}

// watch reads the events of a run up to the first that is enough. The test fails if none is.
func (b *bench) watch(id string, enough func(event) bool) (list []event) {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 30*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, b.url+"/v1/runs/"+id+"/events", http.NoBody)
	if err != nil {
		b.Fatal(err)
	}
	r.Header.Set("Authorization", "Bearer "+token)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if kind := res.Header.Get("Content-Type"); kind != "text/event-stream" {
		b.Errorf("events are %s", kind)
	}
	var e event
	lines := bufio.NewScanner(res.Body)
	for lines.Scan() {
		name, value, _ := strings.Cut(lines.Text(), ": ")
		switch name {
		case "event":
			e.name = value
		case "data":
			e.it = Run{}
			if err := json.Unmarshal([]byte(value), &e.it); err != nil {
				b.Fatal(err)
			}
		case "":
			if list = append(list, e); enough(e) {
				return list
			}
		}
	}
	b.Fatalf("the events end after %d, without what is wanted: %v", len(list), lines.Err())
	return nil
}

func ended(e event) bool { return e.name == "end" }

func running(e event) bool { return e.it.State == Running && e.it.Progress.Served > 0 }

// TestRun starts a run, watches it, and fetches its results.
func TestRun(t *testing.T) {
	b := newBench(t)
	started := b.do("POST", "/v1/runs", `{"trace": "sub/short.jsonl", "speedup": 2}`)
	it := b.run(started, http.StatusCreated)
	if at := started.header.Get("Location"); at != "/v1/runs/"+it.ID || !isID.MatchString(it.ID) {
		t.Errorf("run %q is at %q", it.ID, at)
	}
	events := b.watch(it.ID, ended)
	last := events[len(events)-1].it
	if last.State != Finished || last.ExitStatus == nil || last.Verdict == nil || last.Progress.Served != 1 || last.Ended.Before(last.Started) {
		t.Errorf("the run ends as %+v", last)
	}
	if got := fmt.Sprint(last.Options); got != "map[speedup:2]" {
		t.Errorf("options %s", got)
	}
	it = b.run(b.do("GET", "/v1/runs/"+it.ID, ""), http.StatusOK)
	var got []string
	for _, f := range it.Files {
		got = append(got, f.Name)
		a := b.do("GET", f.URL, "")
		if a.status != http.StatusOK || int64(len(a.body)) != f.Size {
			t.Errorf("%s: status %d, %d bytes of %d", f.URL, a.status, len(a.body), f.Size)
		}
		if strings.HasSuffix(f.Name, ".html") && !strings.HasPrefix(a.header.Get("Content-Security-Policy"), "sandbox") {
			t.Error("the page is not in a sandbox")
		}
	}
	if want := []string{"summary.json", "summary.csv", "series.csv", "report.html", "requests.jsonl", "requests.meta.json"}; !slices.Equal(got, want) {
		t.Errorf("files %v, want %v", got, want)
	}
	var summary struct{ Run struct{ ID string } }
	if err := json.Unmarshal([]byte(b.do("GET", "/v1/runs/"+it.ID+"/files/summary.json", "").body), &summary); err != nil || summary.Run.ID != it.ID {
		t.Errorf("the summary is of run %q (%v)", summary.Run.ID, err)
	}
	metrics := b.do("GET", "/metrics", "").body
	for _, want := range []string{
		`mooncake_agent_runs{mooncake_run_state="finished"} 1`, `mooncake_requests_sent_total{mooncake_run_id="` + it.ID + `"} 1`,
		`mooncake_run_verdict{mooncake_run_id="` + it.ID + `",mooncake_verdict_class="`, `mooncake_latency_ttft_seconds_bucket{`,
	} {
		if !strings.Contains(metrics, want) {
			t.Errorf("the metrics lack %s", want)
		}
	}
	if a := b.do("POST", "/v1/runs/"+it.ID+"/stop", ""); b.run(a, http.StatusOK).State != Finished {
		t.Errorf("to stop a run that has ended changes it: %s", a.body)
	}
	if a := b.do("DELETE", "/v1/runs/"+it.ID, ""); a.status != http.StatusNoContent {
		t.Errorf("remove: %d %s", a.status, a.body)
	}
	b.refused(b.do("GET", "/v1/runs/"+it.ID, ""), http.StatusNotFound, "no run with this id")
	if _, err := os.Stat(filepath.Join(b.folder, it.ID)); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a removed run: %v", err)
	}
}

// TestScrapes: there is a limit for scrapes at a time.
func TestScrapes(t *testing.T) {
	b := newBench(t)
	status := make(chan int, maxScrapes+1)
	b.service.mu.Lock() // no scrape can end
	for range maxScrapes + 1 {
		go func() { status <- b.do("GET", "/metrics", "").status }()
	}
	var first int
	select {
	case first = <-status:
	case <-time.After(10 * time.Second):
	}
	b.service.mu.Unlock()
	if first != http.StatusServiceUnavailable {
		t.Errorf("one scrape too many: status %d", first)
	}
	for range maxScrapes {
		if got := <-status; got != http.StatusOK {
			t.Errorf("status %d", got)
		}
	}
}

// TestOneAtATime: while a run is in progress, no other run starts, and the first one cannot be removed; when that is stopped, it writes its
// report.
func TestOneAtATime(t *testing.T) {
	b := newBench(t)
	it := b.start("long.jsonl")
	b.watch(it.ID, running)
	if metrics := b.do("GET", "/metrics", "").body; !strings.Contains(metrics, `mooncake_requests_in_flight{mooncake_run_id="`+it.ID+`"} 0`) {
		t.Errorf("the metrics of a run under way:\n%s", metrics)
	}
	busy := b.do("POST", "/v1/runs", `{"trace": "short.jsonl"}`)
	b.refused(busy, http.StatusConflict, "run "+it.ID+" is under way")
	var p problem
	if err := json.Unmarshal([]byte(busy.body), &p); err != nil || !slices.Equal(p.Running, []string{it.ID}) {
		t.Errorf("under way are %v (%v)", p.Running, err)
	}
	b.refused(b.do("DELETE", "/v1/runs/"+it.ID, ""), http.StatusConflict, "stop it first")
	if a := b.do("GET", "/v1/runs/"+it.ID+"/files/"+report.PartialFile, ""); a.status != http.StatusOK {
		t.Errorf("the records so far: %d %s", a.status, a.body)
	}
	if state := b.run(b.do("POST", "/v1/runs/"+it.ID+"/stop", ""), http.StatusAccepted).State; state != Stopping && state != Stopped {
		t.Errorf("a stopped run is %s", state)
	}
	events := b.watch(it.ID, ended)
	if last := events[len(events)-1].it; last.State != Stopped || last.Error != "stopped by a request" || len(last.Files) < 5 || last.Progress.Served != 1 {
		t.Errorf("the run ends as %+v", last)
	}
	b.start("short.jsonl")
}

// TestRefusals: requests that are refused, and what the client must be told.
func TestRefusals(t *testing.T) {
	b := newBench(t)
	for _, c := range []struct {
		method, path, body string
		header             []string
		status             int
		want               string
	}{
		{"GET", "/v1/runs", "", []string{"Authorization", ""}, 401, "no token"},
		{"GET", "/v1/runs", "", []string{"Authorization", "Bearer " + token + "x"}, 401, "not this service's"},
		{"GET", "/v1/runs", "", []string{"Authorization", "Basic " + token}, 401, "not this service's"},
		{"POST", "/v1/runs", strings.Repeat("x", 1<<20), []string{"Authorization", ""}, 401, "no token"},
		{"GET", "/metrics", "", []string{"Authorization", ""}, 401, "no token"},
		{"GET", "/nothing", "", []string{"Authorization", ""}, 401, "no token"},
		{"GET", "/nothing", "", nil, 404, "/openapi.json lists"},
		{"PUT", "/v1/runs", "", nil, 405, "POST"},
		{"GET", "/v1/runs/0123456789abcdef", "", nil, 404, "no run with this id"},
		{"GET", "/v1/runs/..%2f..", "", nil, 404, "no run with this id"},
		{"POST", "/v1/runs", "", nil, 400, "not a JSON object"},
		{"POST", "/v1/runs", "null", nil, 400, "trace: none given"},
		{"POST", "/v1/runs", `[1]`, nil, 400, "not a JSON object"},
		{"POST", "/v1/runs", `{"trace": "short.jsonl", "trace": "long.jsonl"}`, nil, 400, "unique names (byte"},
		{"POST", "/v1/runs", `{"trace": "short.jsonl"} {}`, nil, 400, "not a JSON object"},
		{"POST", "/v1/runs", `{"trace": 1}`, nil, 400, "trace: want a text"},
		{"POST", "/v1/runs", `{"speedup": 1}`, nil, 400, "trace: none given"},
		{"POST", "/v1/runs", `{"trace": "short.jsonl", "out": "/etc"}`, nil, 400, "out: a run has no such option"},
		{"POST", "/v1/runs", `{"trace": "short.jsonl", "speedup": -1}`, nil, 400, "speed-up"},
		{"POST", "/v1/runs", `{"trace": "short.jsonl", "speedup": "` + strings.Repeat("1", 300<<10) + `"}`, nil, 413, "bytes"},
		{"POST", "/v1/runs", `{"trace": "short.jsonl"}`, []string{"Content-Type", "text/plain"}, 415, "want application/json"},
		{"POST", "/v1/runs", `x`, []string{"Content-Type", "multipart/form-data"}, 400, "cannot be read"},
		{"POST", "/v1/runs", `{"trace": "../runs/x"}`, nil, 400, "not a file in the service's folder"},
		{"POST", "/v1/runs", `{"trace": "/etc/passwd"}`, nil, 400, "not a file in the service's folder"},
		{"POST", "/v1/runs", `{"trace": "link.jsonl"}`, nil, 400, "not a file in the service's folder"},
		{"POST", "/v1/runs", `{"trace": "sub"}`, nil, 400, "not a regular file"},
		{"POST", "/v1/runs", `{"trace": "http://127.0.0.1:1/trace.jsonl"}`, nil, 400, "there is no such file"},
		{"POST", "/v1/runs", `{"trace": "-"}`, nil, 400, "there is no such file"},
		{"POST", "/v1/runs", `{"trace": "short.jsonl", "url": "http://169.254.169.254/"}`, nil, 403, "sends nothing to http://169.254.169.254:80"},
		{"POST", "/v1/runs", `{"trace": "short.jsonl", "url": "http://user:word@127.0.0.1"}`, nil, 403, "without user"},
	} {
		a := b.do(c.method, c.path, c.body, c.header...)
		t.Logf("%s %s %.60s", c.method, c.path, c.body)
		b.refused(a, c.status, c.want)
		if got := a.header.Get("WWW-Authenticate"); (c.status == 401) != (got == "Bearer") {
			t.Errorf("%d with WWW-Authenticate %q", c.status, got)
		}
	}
	if left, err := filepath.Glob(filepath.Join(b.folder, "[^.]*")); err != nil || len(left) > 0 {
		t.Errorf("refused requests leave %v (%v)", left, err)
	}
	for _, path := range []string{"/healthz", "/readyz", "/openapi.json"} {
		if a := b.do("GET", path, "", "Authorization", ""); a.status != http.StatusOK {
			t.Errorf("%s without a token: %d", path, a.status)
		}
	}
}

// TestMetadataOutside: a trace is not read with metadata from outside the folder of traces.
func TestMetadataOutside(t *testing.T) {
	b := newBench(t)
	outside, link := filepath.Join(t.TempDir(), "secret"), filepath.Join(b.traces, "short.meta.json")
	if err := errors.Join(os.WriteFile(outside, []byte("secret"), 0o600), os.Symlink(outside, link)); err != nil {
		t.Fatal(err)
	}
	b.refused(b.do("POST", "/v1/runs", `{"trace": "short.jsonl"}`), http.StatusBadRequest, `"short.meta.json": it is not a file in the service's folder`)
	if err := errors.Join(os.Remove(link), os.Symlink("sub", link)); err != nil {
		t.Fatal(err)
	}
	b.refused(b.do("POST", "/v1/runs", `{"trace": "short.jsonl"}`), http.StatusBadRequest, `"short.meta.json": it is not a regular file`)
}

// TestSlowWithoutToken: a client without the token is refused although the body that it announces does not come, and its connection ends.
func TestSlowWithoutToken(t *testing.T) {
	b := newBench(t)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(b.url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second)) // the test has failed then
	if _, err := io.WriteString(c, "POST /v1/runs HTTP/1.1\r\nHost: service\r\nContent-Length: 1000\r\n\r\n{"); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c) // up to the end of the connection
	if err != nil || !strings.HasPrefix(string(got), "HTTP/1.1 401 ") {
		t.Errorf("got %q (%v), want status 401 and the end of the connection", got, err)
	}
}

// TestRemoveWaits: a run is removed only when nothing is written to its folder any more.
func TestRemoveWaits(t *testing.T) {
	folder := t.TempDir()
	s, err := New(Config{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	one := &run{it: Run{ID: "0123456789abcdef", State: Finished}, done: make(chan struct{})}
	dir := filepath.Join(folder, one.it.ID)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		one.done = make(chan struct{})
		removed := make(chan error, 1)
		go func() { removed <- s.forget(one) }()
		synctest.Wait()
		if _, err := os.Stat(dir); err != nil {
			t.Errorf("a run whose end is being written is removed: %v", err)
		}
		close(one.done)
		if err := <-removed; err != nil {
			t.Error(err)
		}
	})
	if _, err := os.Stat(dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the folder of a removed run: %v", err)
	}
}

// TestWarningsNameNoFolder: the warnings of a report do not show where the service has its folders.
func TestWarningsNameNoFolder(t *testing.T) {
	s := &Service{cfg: Config{Folder: "/srv/runs"}}
	one := &run{done: make(chan struct{})}
	it := one.conclude(&report.Report{Warnings: []string{"rows are in /srv/runs/1/rejected.jsonl"}}, nil, s.public)
	if want := []string{"rows are in 1/rejected.jsonl"}; !slices.Equal(it.Warnings, want) {
		t.Errorf("warnings %q, want %q", it.Warnings, want)
	}
}

// form returns the body and the content type of a request with parts, which are given as name, content, name, content, ...
func form(parts ...string) (body, kind string) {
	var out bytes.Buffer
	w := multipart.NewWriter(&out)
	for i := 0; i < len(parts); i += 2 {
		part, _ := w.CreateFormFile(parts[i], "../../etc/"+parts[i])
		_, _ = io.WriteString(part, parts[i+1])
	}
	_ = w.Close()
	return out.String(), w.FormDataContentType()
}

// TestUpload: a trace that comes with its request, and errors in such requests.
func TestUpload(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Traces = "" })
	b.refused(b.do("POST", "/v1/runs", `{"trace": "short.jsonl"}`), http.StatusBadRequest, "no folder of traces")
	meta := `{"schema": 1, "block_size": 512, "rows": 7}`
	for _, c := range []struct {
		parts  []string
		status int
		want   string
	}{
		{[]string{"options", "{}"}, 400, "part trace is missing"},
		{[]string{"trace", short, "trace", short}, 400, "occurs twice"},
		{[]string{"trace", short, "extra", "x"}, 400, "want the parts"},
		{[]string{"trace", ""}, 400, "is empty"},
		{[]string{"trace", strings.Repeat(short, 20_000)}, 413, "part trace has more than 1048576 bytes"},
		{[]string{"options", strings.Repeat(" ", 300<<10), "trace", short}, 413, "more than"},
		{[]string{"options", `{"trace": "short.jsonl"}`, "trace", short}, 400, "give it once"},
	} {
		body, kind := form(c.parts...)
		b.refused(b.do("POST", "/v1/runs", body, "Content-Type", kind), c.status, c.want)
	}
	body, kind := form("trace", short, "meta", meta, "options", `{"speedup": 3}`)
	it := b.run(b.do("POST", "/v1/runs", body, "Content-Type", kind), http.StatusCreated)
	events := b.watch(it.ID, ended)
	last := events[len(events)-1].it
	if last.State != Finished || !strings.Contains(strings.Join(last.Warnings, "\n"), "7") { // the number of rows in the metadata file
		t.Errorf("the run ends as %+v", last)
	}
	bad, kind := form("trace", "no trace")
	it = b.run(b.do("POST", "/v1/runs", bad, "Content-Type", kind), http.StatusCreated)
	events = b.watch(it.ID, ended)
	if last = events[len(events)-1].it; last.State != Failed || !strings.Contains(last.Error, "trace.jsonl") || strings.Contains(last.Error, b.folder) {
		t.Errorf("a run of something that is not a trace ends as %+v", last)
	}
}

// TestStopAndRestart: a service that is stopped stops its run, and the client that watches it sees the end. The next service lists the run,
// and marks each run that had not ended as interrupted.
func TestStopAndRestart(t *testing.T) {
	b := newBench(t)
	it := b.start("long.jsonl")
	b.watch(it.ID, running)
	seen := make(chan event)
	go func() {
		events := b.watch(it.ID, ended)
		seen <- events[len(events)-1]
	}()
	if _, err := New(b.service.cfg); err == nil || !strings.Contains(err.Error(), "another agent has it") {
		t.Errorf("a second service with the folder: %v", err)
	}
	b.end()
	if last := (<-seen).it; last.State != Stopped || len(last.Files) < 5 {
		t.Errorf("the watcher sees %+v", last)
	}
	dead := filepath.Join(b.folder, "0123456789abcdef")
	lost := filepath.Join(b.folder, "fedcba9876543210")
	err := errors.Join(
		os.Mkdir(dead, 0o700), os.Mkdir(lost, 0o700), os.Mkdir(filepath.Join(b.folder, "other"), 0o700),
		os.WriteFile(filepath.Join(dead, runFile), []byte(`{"id": "0123456789abcdef", "state": "running", "trace": "short.jsonl", "created": "2026-01-02T03:04:05Z"}`), 0o600),
		os.WriteFile(filepath.Join(dead, report.PartialFile), []byte(short), 0o600),
		os.WriteFile(filepath.Join(lost, runFile), []byte(`{`), 0o600),
	)
	if err != nil {
		t.Fatal(err)
	}
	b.begin()
	got := make(map[string]State)
	for _, it := range b.service.list() {
		got[it.ID] = it.State
	}
	if want := map[string]State{it.ID: Stopped, filepath.Base(dead): Interrupted, filepath.Base(lost): Interrupted}; fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("after a restart there are %v, want %v", got, want)
	}
	if a := b.do("GET", "/v1/runs/0123456789abcdef/files/"+report.PartialFile, ""); a.body != short {
		t.Errorf("what is left of the run: %d %s", a.status, a.body)
	}
	events := b.watch(it.ID, ended)
	if len(events) != 1 {
		t.Errorf("a run that has ended has %d events", len(events))
	}
}

// TestRestartOnFullDisk: a run whose end cannot be written is still listed as interrupted.
func TestRestartOnFullDisk(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "runs")
	s, err := openStore(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.close()
	err = errors.Join(
		s.root.Mkdir("0123456789abcdef", 0o700),
		s.root.WriteFile("0123456789abcdef/"+runFile, []byte(`{"id": "0123456789abcdef", "state": "starting"}`), 0o600),
		os.Rename(dir, dir+"2"), // the store can still read its folder, but writes nothing into it
	)
	if err != nil {
		t.Fatal(err)
	}
	var said string
	list, err := s.load(func(text string) { said = text })
	if err != nil || len(list) != 1 || list[0].State != Interrupted || !strings.Contains(said, "still says starting") {
		t.Errorf("the runs are %+v (%v), after %q", list, err, said)
	}
}

// TestEnding: a service that is being stopped is not ready, and starts nothing.
func TestEnding(t *testing.T) {
	b := newBench(t)
	b.service.end()
	b.refused(b.do("GET", "/readyz", ""), http.StatusServiceUnavailable, "stopping")
	b.refused(b.do("POST", "/v1/runs", `{"trace": "short.jsonl"}`), http.StatusServiceUnavailable, "starts no run")
	if a := b.do("GET", "/healthz", ""); a.status != http.StatusOK {
		t.Errorf("/healthz: %d", a.status)
	}
}

// TestRoom: the oldest run is removed for a new one, but not for a request that is refused, and no run starts on a full disk.
func TestRoom(t *testing.T) {
	b := newBench(t, func(c *Config) { c.KeepRuns = 2 })
	var ids []string
	for range 3 {
		it := b.start("short.jsonl")
		b.watch(it.ID, ended)
		ids = append(ids, it.ID)
	}
	if len(b.service.list()) != 2 || b.service.list()[1].ID != ids[1] {
		t.Errorf("%v are kept of %v", b.service.list(), ids)
	}
	body, kind := form("trace", short, "extra", "x")
	b.refused(b.do("POST", "/v1/runs", body, "Content-Type", kind), http.StatusBadRequest, "want the parts")
	b.refused(b.do("POST", "/v1/runs", `{"trace": "short.jsonl", "out": "x"}`), http.StatusBadRequest, "no such option")
	if n := len(b.service.list()); n != 2 {
		t.Errorf("refused requests leave %d runs of 2", n)
	}
	b.service.cfg.MaxDisk = b.service.store.used(".") / 4
	it := b.start("long.jsonl") // both other runs are removed to make room for it
	if n := len(b.service.list()); n != 1 {
		t.Errorf("%d runs are kept", n)
	}
	b.watch(it.ID, running)
	b.do("POST", "/v1/runs/"+it.ID+"/stop", "")
	b.watch(it.ID, ended)
	if err := os.WriteFile(filepath.Join(b.folder, "others"), bytes.Repeat([]byte("x"), 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	b.refused(b.do("POST", "/v1/runs", `{"trace": "short.jsonl"}`), http.StatusInsufficientStorage, "are allowed (--max-disk)")
	if list := b.service.list(); len(list) != 1 || list[0].ID != it.ID {
		t.Errorf("a request for which there is no room leaves %v", list)
	}
}

// TestDisk: a run that fills the disk is stopped.
func TestDisk(t *testing.T) {
	b := newBench(t)
	it := b.start("long.jsonl")
	b.watch(it.ID, running)
	if err := os.WriteFile(filepath.Join(b.folder, "others"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(b.folder, "others"), 65<<20); err != nil { // a sparse file
		t.Fatal(err)
	}
	events := b.watch(it.ID, ended)
	if last := events[len(events)-1].it; last.State != Stopped || !strings.Contains(last.Error, "--max-disk") {
		t.Errorf("the run ends as %+v", last)
	}
}

// TestWithoutToken: a service without a token answers to this machine's names, and not to web pages.
func TestWithoutToken(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Token = "" })
	if a := b.do("GET", "/v1/runs", "", "Authorization", ""); a.status != http.StatusOK {
		t.Errorf("list: %d %s", a.status, a.body)
	}
	b.refused(b.do("POST", "/v1/runs", `{"trace": "short.jsonl"}`, "Sec-Fetch-Site", "cross-site"), http.StatusForbidden, "web page")
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "http://rebound.example/v1/runs", http.NoBody)
	w := httptest.NewRecorder()
	b.service.Handler().ServeHTTP(w, r)
	if w.Code != http.StatusMisdirectedRequest {
		t.Errorf("by a foreign name: %d", w.Code)
	}
}
