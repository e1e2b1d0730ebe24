// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

func readLines(t *testing.T, path string) []map[string]json.RawMessage {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var list []map[string]json.RawMessage
	sc := bufio.NewScanner(bytes.NewReader(text))
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var line map[string]json.RawMessage
		if err := json.Unmarshal(sc.Bytes(), &line); err != nil {
			t.Fatalf("%v: %s", err, sc.Bytes())
		}
		list = append(list, line)
	}
	return list
}

// Lines contain the rows unchanged, and come in the trace's order, although the records come as requests end.
func TestRequests(t *testing.T) {
	dir := t.TempDir()
	q, err := CreateRequests(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	all := records()
	for i := range all {
		q.Write(all[(i*7)%len(all)])
	}
	path := filepath.Join(dir, RequestsFile)
	if _, err := os.Stat(path); err == nil {
		t.Error("the file has its name before it is complete")
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := q.Close(); err != nil {
		t.Errorf("second Close: %v", err)
	}
	got := readLines(t, path)
	if len(got) != len(all) || q.Lost() != 0 || q.Disordered() != 0 {
		t.Fatalf("%d lines of %d, %d lost, %d out of order", len(got), len(all), q.Lost(), q.Disordered())
	}
	for i, line := range got {
		result := line["result"]
		delete(line, "result")
		var want map[string]json.RawMessage
		if err := json.Unmarshal(mooncake.AppendRow(nil, all[i].Row), &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, line); d != "" {
			t.Errorf("row %d changed:\n%s", i, d)
		}
		var res struct{ Outcome, Reason string }
		if err := json.Unmarshal(result, &res); err != nil || res.Outcome != all[i].Outcome.String() || res.Reason != all[i].Reason {
			t.Errorf("row %d: %+v, %v", i, res, err)
		}
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
}

// The reader of traces accepts the file, and returns the rows.
func TestRequestsCanBeReplayed(t *testing.T) {
	dir := t.TempDir()
	q, err := CreateRequests(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range records() {
		q.Write(r)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(filepath.Join(dir, RequestsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	reader := mooncake.NewReader(f, mooncake.ReaderOptions{})
	var got, want []*mooncake.Row
	for {
		row, err := reader.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, row)
	}
	for _, r := range records() {
		want = append(want, r.Row)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
}

func TestResultByHand(t *testing.T) {
	r := records()[2]
	got, err := json.Marshal(new(values).result(r))
	if err != nil {
		t.Fatal(err)
	}
	// Intended 500 + 2·300 = 1100; dispatched 0.05 later, start 0.1, wire 0.42; first 80 + 50 after the wire = 1230.42; seven
	// gaps of 10.2 make the last 1301.82. TTFT 1230.42 − 1100.1, latency 1301.82 − 1100.1, ITL 71.4 ÷ 7.
	want := `{"outcome":"served","row":2,"turn":0,"intended":1100,"dispatched":1100.05,"admitted":1100.05,"start":1100.1,` +
		`"wire":1100.42,"first_event":1229.42,"first":1230.42,"last":1301.82,"end":1302.82,"lateness_ms":0.05,"ttft_ms":130.32,"latency_ms":201.72,"itl_ms":10.2,` +
		`"gaps_ms":[10.2,10.2,10.2,10.2,10.2,10.2,10.2],"kernel_stamps":true,"phases_ms":{"sending":0.2,"waiting":75,"receiving":100},"bytes_sent":4000,"bytes_read":4000,"usage":{"prompt_tokens":6600,"completion_tokens":8,"cached_tokens":512},` +
		`"predicted_cached_tokens":512,"prompt_agreement":"equal","output_agreement":"equal","status":200,"attempts":1,` +
		`"connection_reused":true,"finish_reason":"length","response_id":"r-1",` +
		`"trace_id":"00000000000000000000000000000003","span_id":"0000000000000003"}`
	if d := cmp.Diff(want, string(got)); d != "" {
		t.Error(d)
	}

	r.Exchange.Replays, r.Exchange.Resent, r.Prompt, r.Exchange.Usage.Prompt = 2, 1, measure.AgreeDifferent, 6597
	got, err = json.Marshal(new(values).result(r))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"attempts":1,"replays":2,"resent":1,`, `"prompt_agreement":"different","prompt_token_error":-3,`} {
		if !strings.Contains(string(got), want) {
			t.Errorf("no %s in %s", want, got)
		}
	}

	all := records()
	got, err = json.Marshal(new(values).result(all[8])) // skipped: no instant is claimed
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range []string{"intended", "start", "ttft", "usage", "attempts"} {
		if strings.Contains(string(got), key) {
			t.Errorf("a skipped row has %s: %s", key, got)
		}
	}
	got, err = json.Marshal(new(values).result(all[9])) // refused: it started and never reached the wire
	if err != nil {
		t.Fatal(err)
	}
	if s := string(got); !strings.Contains(s, `"start":3200,"end":3201`) || strings.Contains(s, "-4611") {
		t.Errorf("a refused row: %s", s)
	}
}

func TestRowsOfEveryKind(t *testing.T) {
	for name, test := range map[string]struct {
		row  *mooncake.Row
		want string
	}{
		"no row":   {nil, `{"result": {`},
		"no field": {&mooncake.Row{}, `{"result": {`},
		"text":     {&mooncake.Row{TextInput: mooncake.Some("a \"b\"\n")}, `{"text_input": "a \"b\"\n", "result": {`},
	} {
		got, err := new(values).appendLine(nil, &measure.Record{Row: test.row, Outcome: measure.Skipped, Predicted: send.Unknown})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasPrefix(string(got), test.want) || !json.Valid(got) || bytes.IndexByte(got, '\n') != len(got)-1 {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// skipped returns the record of a row that was not sent.
func skipped(index int64) *measure.Record {
	return &measure.Record{Index: index, Outcome: measure.Skipped, Predicted: send.Unknown}
}

// TestRecordsAreInTheFileWithinASecond: if the run is killed a second after a request's end, its record is in the file, whole, even if an
// earlier request is still in flight. The file can be read as a trace.
func TestRecordsAreInTheFileWithinASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		q, err := CreateRequests(dir, &mooncake.Meta{BlockSize: 16, SessionMode: mooncake.SessionNone})
		if err != nil {
			t.Fatal(err)
		}
		partial := filepath.Join(dir, PartialFile)
		for round := range int64(5) { // row 0 ends last
			for i := range int64(10) {
				q.Write(skipped(10*round + i + 1))
			}
			time.Sleep(flushAfter + time.Millisecond)
			synctest.Wait()
			if n := len(readLines(t, partial)); n != int(10*round)+10 {
				t.Errorf("%d records in the file a second after the last of %d", n, 10*round+10)
			}
			time.Sleep(10 * time.Second) // and nothing happens
		}
		trace, err := mooncake.Open(t.Context(), partial, mooncake.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if meta := trace.Meta(); meta == nil || meta.BlockSize != 16 {
			t.Errorf("sidecar %+v", meta)
		}
		if err := trace.Close(); err != nil {
			t.Fatal(err)
		}
		q.Write(skipped(0))
		if err := q.Close(); err != nil || q.Disordered() != 0 {
			t.Errorf("%d out of order, %v", q.Disordered(), err)
		}
		for i, line := range readLines(t, filepath.Join(dir, RequestsFile)) {
			if !strings.Contains(string(line["result"]), fmt.Sprintf(`"row":%d,`, i)) {
				t.Fatalf("line %d: %s", i, line["result"])
			}
		}
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Errorf("%v, %v: want the file alone", entries, err)
		}
	})
}

// TestALargeRecordIsWrittenAtOnce: a record that fills the buffer is written at once.
func TestALargeRecordIsWrittenAtOnce(t *testing.T) {
	dir := t.TempDir()
	q, err := CreateRequests(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	r := skipped(0)
	r.Message = strings.Repeat("x", flushBytes)
	q.Write(r)
	if n := len(readLines(t, filepath.Join(dir, PartialFile))); n != 1 {
		t.Errorf("%d lines", n)
	}
	if err := q.Abandon(); err != nil {
		t.Fatal(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 0 {
		t.Errorf("%v, %v: an abandoned file stays", entries, err)
	}
}

// TestOrderNeedsNoLuck: the row of a line is found whatever text is around it.
func TestOrderNeedsNoLuck(t *testing.T) {
	nasty := `"result": {"row":7,` + "\n" + `,"row":8,"result": {`
	for index, r := range []*measure.Record{
		{Message: nasty},
		{Reason: nasty, Row: &mooncake.Row{TextInput: mooncake.Some(nasty)}},
		{Row: &mooncake.Row{Foreign: map[string]json.RawMessage{"result": json.RawMessage(`{"row":9,"x":{"result": {"row":9,"y":1}}}`)}}},
	} {
		r.Index, r.Outcome, r.Predicted = int64(index), measure.Failed, send.Unknown
		text, err := new(values).appendLine(nil, r)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := lineRow(text); err != nil || got != int64(index) {
			t.Errorf("row %d, %v, want %d: %s", got, err, index, text)
		}
	}
	if _, err := lineRow([]byte("{}\n")); err == nil {
		t.Error("a line of another kind has a row")
	}
}

// A request that outlasts the buffer is out of order, and counted.
func TestDisorderIsCounted(t *testing.T) {
	dir := t.TempDir()
	q, err := CreateRequests(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := int64(1); i <= maxHeld+5; i++ {
		q.Write(skipped(i))
	}
	q.Write(skipped(0))
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if q.Disordered() != 1 || len(readLines(t, filepath.Join(dir, RequestsFile))) != maxHeld+6 {
		t.Errorf("%d out of order, want the one that came too late", q.Disordered())
	}
}

// Lost returns the number of records that are not in the file because of an error.
func (q *Requests) Lost() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.lost
}

// A broken disk does not stop the run: Write continues, Close returns the error.
func TestRequestsOnABrokenFile(t *testing.T) {
	dir := t.TempDir()
	q, err := CreateRequests(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.file.Close(); err != nil { // every write fails from here on
		t.Fatal(err)
	}
	long := strings.Repeat("x", 2<<20)
	for i := range int64(40) { // past the buffers' bounds, so that the failure shows before Close
		q.Write(&measure.Record{Index: i, Outcome: measure.Skipped, Message: long, Predicted: send.Unknown})
	}
	lost := q.Lost()
	err = q.Close()
	if err == nil || !strings.Contains(err.Error(), "records are not in requests.jsonl") {
		t.Errorf("Close: %v", err)
	}
	if lost == 0 || q.Lost() != 40 {
		t.Errorf("%d lost before Close, %d after it, want all 40", lost, q.Lost())
	}
	if _, err := os.Stat(filepath.Join(dir, RequestsFile)); err == nil {
		t.Error("an incomplete file got its name")
	}
}

func TestOutputDirectoryThatCannotBe(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := CreateRequests(filepath.Join(file, "out"), nil); err == nil || !strings.Contains(err.Error(), "--out") {
		t.Errorf("error %v should say what to do", err)
	}
	if err := sample(t).WriteFiles(filepath.Join(file, "out")); err == nil {
		t.Error("no error")
	}
}

func TestConcurrentWrites(t *testing.T) {
	dir := t.TempDir()
	q, err := CreateRequests(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for g := range int64(4) {
		wg.Go(func() {
			for i := range int64(100) {
				q.Write(&measure.Record{Index: 4*i + g, Outcome: measure.Skipped, Predicted: send.Unknown})
			}
		})
	}
	wg.Wait()
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if n := len(readLines(t, filepath.Join(dir, RequestsFile))); n != 400 {
		t.Errorf("%d lines", n)
	}
	q.Write(&measure.Record{})
	if q.Lost() != 1 {
		t.Error("a record after Close is lost without being counted")
	}
}

func BenchmarkWrite(b *testing.B) {
	q, err := CreateRequests(b.TempDir(), nil)
	if err != nil {
		b.Fatal(err)
	}
	r := records()[3]
	for range 340 { // the conversation trace's mean output
		r.Exchange.At = append(r.Exchange.At, r.Exchange.At[len(r.Exchange.At)-1]+int64(20*time.Millisecond)+12345)
	}
	b.ReportAllocs()
	for b.Loop() {
		r.Index++
		q.Write(r)
	}
	if err := q.Close(); err != nil {
		b.Fatal(err)
	}
}
