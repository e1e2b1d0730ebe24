// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/mooncake"
)

// odd returns further records, in addition to those of [records]: rare cases that figures must count.
func odd() []*measure.Record {
	list := records()[20:28]
	list[0].Exchange.Tokens = []int32{1, 2, 1, 1, 1, 1, 1, 1}
	list[1].Exchange.Whole, list[1].Exchange.At = true, list[1].Exchange.At[:1]
	list[2].Exchange.WireLate, list[2].Exchange.Attempts, list[2].Exchange.Unconnected = true, 2, 1
	list[3].Exchange.Replays, list[3].Exchange.Resent = 1, 1
	list[4].Exchange.Choices = 2
	list[4].Server, list[4].Model = &measure.Server{Name: "b:1"}, "other"
	list[5].Carried, list[5].Invented, list[5].Replies = 20, 30, []string{"", "late"}
	list[6].Predicted, list[6].Finest, list[6].Block, list[6].Exchange.FirstAnswer = 512, 520, 16, list[6].Exchange.FirstAnswer+7*ms
	list[7].Exchange.Usage.Cached, list[7].CachedRefused, list[7].TooShort, list[7].Assumed, list[7].TailCut = send.Unknown, true, true, true, true
	list[7].OutputTokensAsked, list[7].PromptTokens = 4, 70000
	list[5].Row.Class, list[6].Row.Class = "batch", "batch"
	list[5].Priority, list[6].Priority, list[7].Priority = mooncake.Some[int64](0), mooncake.Some[int64](0), mooncake.Some[int64](-3)
	for i, r := range list {
		r.Index = int64(100 + i)
	}
	return list
}

// The file has everything that figures are made from: the figures of the records read back are those of the run, to the microsecond.
func TestRecordsGiveTheFigures(t *testing.T) {
	dir := t.TempDir()
	q, err := CreateRequests(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	slo := measure.SLO{TTFT: 500 * ms}
	want, got := measure.NewAggregate(measure.Options{SLO: slo}), measure.NewAggregate(measure.Options{SLO: slo})
	for _, r := range append(records(), odd()...) {
		r.Finest = max(r.Finest, r.Predicted)
		want.Add(r)
		q.Write(r)
	}
	if err := q.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Records(dir, func(r *measure.Record) error { got.Add(r); return nil }); err != nil {
		t.Fatal(err)
	}
	a, b := want.Figures(), got.Figures()
	close := cmpopts.EquateApprox(1e-3, 2e-3) //nolint:predeclared // reads better
	if d := cmp.Diff(a, b, close, cmpopts.IgnoreUnexported(measure.Figures{})); d != "" {
		t.Error(d)
	}
	n := 0
	for id, s := range a.All {
		n++
		other, _ := b.Stat(id)
		if d := cmp.Diff(s, other, close); d != "" {
			t.Errorf("%s:\n%s", id, d)
		}
	}
	if n < 40 {
		t.Errorf("%d figures: the test shows little", n)
	}
}

// In the file of a killed run, all lines but the last are whole. In a complete file, a torn line is damage.
func TestRecordsOfAKilledRun(t *testing.T) {
	dir := t.TempDir()
	r := records()[3]
	line, err := new(values).appendLine(nil, r)
	if err != nil {
		t.Fatal(err)
	}
	text := string(line) + string(line[:len(line)/2])
	if err := os.WriteFile(filepath.Join(dir, PartialFile), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n := 0
	if err := Records(dir, func(got *measure.Record) error {
		n++
		if got.Index != r.Index || got.Span != r.Span {
			t.Errorf("%+v", got)
		}
		return nil
	}); err != nil || n != 1 {
		t.Errorf("%d records, %v", n, err)
	}
	for name, content := range map[string]string{
		"line 2": text, "line 1": string(line[:20]) + "\n" + string(line), "outcome": `{"input_length": 3, "result": {"outcome": "lost"}}`, "trace": `{"input_length": 3}`,
	} {
		if err := os.WriteFile(filepath.Join(dir, RequestsFile), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := Records(dir, func(*measure.Record) error { return nil }); err == nil || name != "trace" && !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stop := errors.New("enough")
	if err := os.WriteFile(filepath.Join(dir, RequestsFile), line, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Records(dir, func(*measure.Record) error { return stop }); !errors.Is(err, stop) {
		t.Error(err)
	}
	if err := Records(t.TempDir(), func(*measure.Record) error { return nil }); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// TestRecordsBoundInstants: whatever number a file has for an instant, the instant is one that a run can have.
func TestRecordsBoundInstants(t *testing.T) {
	r, err := parseRecord([]byte(`{"input_length": 1, "result": {"outcome": "failed", "row": 0, "turn": 0, "intended": 1e300, "start": -1e300}}`))
	if err != nil || r.Intended < 0 || r.Exchange.Start > clock.Never+time.Hour && r.Exchange.Start > 0 {
		t.Errorf("%+v, %v", r, err)
	}
	if r.Row.InputLength != mooncake.Some[int64](1) {
		t.Error(r.Row)
	}
}

// A file may claim any gaps: the times that they add up to do not overflow.
func TestRecordsOfHugeGaps(t *testing.T) {
	for gap, want := range map[string]time.Duration{"1e300": 1e18, "-1e300": -1e15} {
		r, err := parseRecord([]byte(`{"input_length": 1, "output_length": 1, "result": {"outcome":"served","start":0,"first":0,"gaps_ms":[` + strings.Repeat(gap+",", 20) + gap + `]}}`))
		if err != nil {
			t.Fatal(err)
		}
		for i, at := range r.Exchange.At[1:] {
			if time.Duration(at) != want {
				t.Fatalf("gaps of %s ms: chunk %d came at %d ns", gap, i+1, at)
			}
		}
	}
}
