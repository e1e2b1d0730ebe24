// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package capture

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

const (
	tenMillionJournals = 8
	childVariable      = "MOONLOOP_COMPILE_CHILD" // the folder with the journals, set for the process that compiles them
)

// mix returns the next number of a sequence that looks random (SplitMix64; Steele, Lea and Flood, 2014).
func mix(state *uint64) uint64 {
	*state += 0x9e3779b97f4a7c15
	z := *state
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// day returns the records of the i-th request of a long day. Of ten requests, three have hashes of the engine, three have text (a system
// prompt and something new), three have only usage (two of them below a link with a session), and one is a row of a replay.
func day(i uint64, r *journal.Inference, l *journal.Link, state *uint64) (linked bool) {
	ids, cells := r.HashIDs[:0], r.Chain.Cells[:0]
	*r = journal.Inference{
		Span: traceOf(i, 2), Start: epoch + int64(i)*8_640_000 + int64(mix(state)%1e9),
		InputTokens: opt(int64(4096 - mix(state)%500)), OutputTokens: opt(int64(mix(state) % 2000)),
		Prompt:   journal.Prompt{Identity: journal.None},
		Response: journal.Response{byte(i), byte(i >> 8), byte(i >> 16), byte(i >> 24), 1}, Model: nameOf("model-" + strconv.Itoa(int(i%3))),
	}
	r.End = r.Start + int64(mix(state)%60e9)
	switch i % 10 {
	case 0, 1, 2:
		r.Prompt = journal.Prompt{Identity: journal.Engine, Domain: 5, Key: 9, BlockSize: 512}
		system := mix(state) % 1000
		for j := range uint64(4) {
			ids = append(ids, (system*8+j)*0x9e3779b97f4a7c15)
		}
		for range 4 {
			ids = append(ids, mix(state))
		}
		r.HashIDs = ids
	case 3, 4, 5:
		r.Prompt = journal.Prompt{Identity: journal.Text, Domain: 6, Key: 9}
		system, n := mix(state)%1000, 16+mix(state)%32
		for j := range n {
			if j < 12 {
				cells = append(cells, (system*64+j+1)*0xbf58476d1ce4e5b9)
			} else {
				cells = append(cells, mix(state))
			}
		}
		r.Chain.Cells, r.Chain.Tail, r.Chain.Bytes = cells, mix(state), int64(n*128+mix(state)%128)
		r.InputTokens = opt(r.Chain.Bytes / 3)
	case 6, 7:
		r.Parent = sid(1)
		*l = journal.Link{Span: traceOf(i, 1), Session: journal.Session(1 + i/40)}
		return true
	case 8:
	case 9:
		r.Prompt = journal.Prompt{Identity: journal.Trace, BlockSize: 512, Domain: 7, HashIDs: append(ids, 0, 1+i/20)}
		r.Run, r.Row, r.Timestamp = nameOf("run"), opt(int64(i/10)), opt(float64(i/10))
		r.InputLength, r.OutputLength = opt[int64](1000), opt[int64](10)
	}
	return false
}

// traceOf returns a span of the i-th trace. Trace ids look random, as they should.
func traceOf(i, span uint64) mooncake.SpanRef {
	r := ref(i, span)
	binary.BigEndian.PutUint64(r.TraceID[:], mix(&i))
	return r
}

// writeDay writes journals of this many requests.
func writeDay(dir string, requests uint64) (int64, error) {
	var failed error
	var once sync.Once
	var size int64
	var sizes [tenMillionJournals]int64
	var group sync.WaitGroup
	for j := range uint64(tenMillionJournals) {
		group.Go(func() {
			f, err := os.Create(filepath.Join(dir, fmt.Sprintf("%d.journal", j)))
			if err == nil {
				w := bufio.NewWriterSize(f, 1<<20)
				_, _ = w.WriteString(header)
				var r journal.Inference
				var l journal.Link
				var rec, frame []byte
				for i := j; i < requests; i += tenMillionJournals {
					state := i
					if day(i, &r, &l, &state) {
						rec = journal.AppendRecord(rec[:0], &l)
						frame = appendFrame(frame[:0], rec)
						_, _ = w.Write(frame)
					}
					rec = journal.AppendRecord(rec[:0], &r)
					frame = appendFrame(frame[:0], rec)
					_, _ = w.Write(frame)
				}
				err = w.Flush()
				if info, statErr := f.Stat(); statErr == nil {
					sizes[j] = info.Size()
				}
				_ = f.Close()
			}
			if err != nil {
				once.Do(func() { failed = err })
			}
		})
	}
	group.Wait()
	for _, n := range sizes {
		size += n
	}
	return size, failed
}

// TestAcceptanceCompileTenMillion compiles ten million inference records in a process of its own, within the memory that
// the package comment states. MOONLOOP_RECORDS sets another number of records.
func TestAcceptanceCompileTenMillion(t *testing.T) {
	if dir := os.Getenv(childVariable); dir != "" {
		compileDay(t, dir)
		return
	}
	if os.Getenv("MOONLOOP_OUT") == "" {
		t.Skip("long: make acceptance runs it")
	}
	requests := uint64(10_000_000)
	if s := os.Getenv("MOONLOOP_RECORDS"); s != "" {
		n, err := strconv.ParseUint(s, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		requests = n
	}
	dir := t.TempDir()
	began := time.Now()
	size, err := writeDay(dir, requests)
	if err != nil {
		t.Fatal(err)
	}
	written := time.Since(began)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestAcceptanceCompileTenMillion$", "-test.v")
	cmd.Env = append(os.Environ(), childVariable+"="+dir, "GOGC=25") // as moonloop compile sets it
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, text, _ := strings.Cut(string(out), "RESULT ")
	var res tenMillion
	if err := json.NewDecoder(strings.NewReader(text)).Decode(&res); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage)
	if !ok || len(res.Traces) != 2 {
		t.Fatalf("%s", out)
	}
	peak, limit := usage.Maxrss<<10, memoryLimit(DefaultMemory)
	took := time.Since(began) - written
	t.Logf("%d inference records in %d journals of %.2f GB, written in %.1f s: compiled in %.1f s, %.1f s of CPU (%.0f records/s); peak RSS %d MiB of at most %d MiB; %d distinct ids",
		res.Inferences, tenMillionJournals, float64(size)/1e9, written.Seconds(), took.Seconds(),
		cmd.ProcessState.UserTime().Seconds()+cmd.ProcessState.SystemTime().Seconds(),
		float64(res.Inferences)/took.Seconds(), peak>>20, limit>>20, res.IDs)
	for line := range strings.Lines(string(out)) {
		if strings.Contains(line, " s ") && len(line) < 80 {
			t.Log(strings.TrimRight(line, "\n"))
		}
	}
	if peak > limit {
		t.Errorf("peak RSS %d MiB is above the limit of %d MiB", peak>>20, limit>>20)
	}
	if rows := res.Traces[0].Meta.Rows + res.Traces[1].Meta.Rows; rows != int64(requests) || res.Inferences != rows {
		t.Errorf("%d rows of %d requests", rows, requests)
	}
}

// memoryLimit returns the bound that follows from the package comment, in bytes, with 64 MiB for the program and what else is in memory,
// and GOGC=25. No record has tokens that an engine had cached, so there is no predicted cache.
func memoryLimit(memory int) int64 { return int64(memory+64<<20) * 5 / 4 }

// compileDay compiles the journals in a folder. It runs in a process of its own.
func compileDay(t *testing.T, dir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "*.journal"))
	if err != nil {
		t.Fatal(err)
	}
	var sources []Source
	for _, name := range names {
		sources = append(sources, FileSource(name))
	}
	began := time.Now()
	last := Stage("")
	progress := func(s Stage, _, _ int64) {
		if s != last {
			last = s
			fmt.Printf("%6.1f s %s\n", time.Since(began).Seconds(), s)
		}
	}
	ids := uint64(0)
	files := Files(filepath.Join(dir, "out.jsonl"))
	sink := func(p Partition) (TraceWriter, error) {
		w, err := files(p)
		return &counted{w, &ids}, err
	}
	res, err := Compile(t.Context(), Options{TempDir: dir, Progress: progress}, sink, sources...)
	if err != nil {
		t.Fatal(err)
	}
	b, err := json.Marshal(tenMillion{res, ids})
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("%6.1f s done\nRESULT %s\n", time.Since(began).Seconds(), b)
}

// tenMillion is what the compiling process reports.
type tenMillion struct {
	Result
	IDs uint64 // distinct ones, of all traces
}

// counted counts the ids of a trace, whose numbers have no gaps.
type counted struct {
	TraceWriter
	ids *uint64
}

func (c *counted) Write(row *mooncake.Row) error {
	for _, id := range row.HashIDs {
		*c.ids = max(*c.ids, id+1)
	}
	return c.TraceWriter.Write(row)
}
