// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"encoding/json"
	"flag"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/quick"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/agent/measure"
)

var update = flag.Bool("update", false, "rewrite the table in the package comment")

// TestEveryValueHasOneClass: each rule's bounds are in order, every value has exactly one class, and a greater value never has a better
// one.
func TestEveryValueHasOneClass(t *testing.T) {
	seen := map[string]bool{}
	for i := range rules {
		r := &rules[i]
		if seen[r.metric] || r.meaning() == "" || !(0 <= r.note && r.note <= r.valid && r.valid <= r.invalid) {
			t.Errorf("rule %s: note %v, valid %v, invalid %v, or it occurs twice", r.metric, r.note, r.valid, r.invalid)
		}
		seen[r.metric] = true
		monotone := func(a, b float64) bool {
			a, b = math.Abs(a), math.Abs(b)
			low, high := r.classify(min(a, b)), r.classify(max(a, b))
			return low <= high && high <= Invalid
		}
		if err := quick.Check(monotone, nil); err != nil {
			t.Errorf("%s: %v", r.metric, err)
		}
		// These are the bounds, and the next values above them, which quick never tries.
		for _, test := range []struct {
			v    float64
			want Class
		}{
			{0, Valid},
			{r.valid, Valid},
			{math.Nextafter(r.valid, math.Inf(1)), after(r)},
			{r.invalid, atInvalid(r)},
			{math.Nextafter(r.invalid, math.Inf(1)), beyond(r)},
		} {
			if got := r.classify(test.v); got != test.want {
				t.Errorf("%s: %v is %v, want %v", r.metric, test.v, got, test.want)
			}
		}
	}
}

// after returns the class just above the valid bound.
func after(r *rule) Class {
	switch {
	case math.IsInf(r.valid, 1):
		return Valid
	case r.valid == r.invalid:
		return Invalid
	}
	return Degraded
}

// atInvalid returns the class at the invalid bound itself.
func atInvalid(r *rule) Class {
	if r.valid == r.invalid {
		return Valid
	}
	return Degraded
}

func beyond(r *rule) Class {
	switch {
	case math.IsInf(r.valid, 1):
		return Valid
	case math.IsInf(r.invalid, 1):
		return Degraded
	}
	return Invalid
}

// good returns the facts of a run without a flaw, in which everything is known.
func good() Facts {
	f := Facts{Served: 100, Rows: 100, Records: 100, Scheduled: 100, Wired: 100, Streams: 100, Elapsed: 10, Steady: true, SteadyRequests: 100, Shards: true}
	v := reflect.ValueOf(&f).Elem()
	for _, field := range v.Fields() {
		if fact, ok := reflect.TypeAssert[*Fact](field.Addr()); ok {
			*fact = Know(0)
		}
	}
	return f
}

func TestAGoodRun(t *testing.T) {
	got := Judge(good())
	if d := cmp.Diff(Verdict{Class: Valid, Reasons: []Reason{}}, got); d != "" {
		t.Error(d)
	}
}

// Every fact is judged: a huge value gives exactly one reason, an unknown value gives none.
func TestEveryFactIsJudged(t *testing.T) {
	f := good()
	v := reflect.ValueOf(&f).Elem()
	for name, field := range v.Fields() {
		fact, ok := reflect.TypeAssert[*Fact](field.Addr())
		if !ok {
			continue
		}
		*fact = Know(math.Inf(1))
		if got := Judge(f); len(got.Reasons) != 1 {
			t.Errorf("%s: %v", name.Name, got)
		}
		*fact = Fact{}
		if got := Judge(f); len(got.Unknown) != 1 || got.Class != Valid || len(got.Reasons) != 0 {
			t.Errorf("%s unknown: %v", name.Name, got)
		}
		*fact = Know(0)
	}
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		name    string
		change  func(*Facts)
		want    Class
		reasons []string // metric: class
	}{
		{"nothing known but the rows", func(f *Facts) { *f = Facts{Served: 1, Rows: 1, Records: 1} }, Valid, nil},
		{"no facts: nothing was served", func(f *Facts) { *f = Facts{} }, Invalid, []string{"no_request_served: invalid"}},
		{"a record is missing", func(f *Facts) { f.Records = 99 }, Invalid, []string{"records_missing: invalid"}},
		{"a record too many", func(f *Facts) { f.Records = 101 }, Invalid, []string{"records_missing: invalid"}},
		{"lateness above its first bound", func(f *Facts) { f.LatenessP99 = Know(10.1) }, Degraded, []string{"lateness_p99: degraded"}},
		{
			"the worst wins and comes first, notes come last",
			func(f *Facts) {
				f.LatenessP50, f.CoalescedShare, f.PromptUnknown, f.SpansLost = Know(1.5), Know(0.21), Know(0.5), Know(0.0001)
			},
			Invalid,
			[]string{"coalesced_share: invalid", "lateness_p50: degraded", "spans_lost: degraded", "prompt_tokens_unknown: valid"},
		},
		{"waits for a cap never make a run invalid", func(f *Facts) { f.CapWaitShare = Know(1) }, Degraded, []string{"cap_wait_share: degraded"}},
		{"unknown prompt tokens are a note", func(f *Facts) { f.PromptUnknown = Know(1) }, Valid, []string{"prompt_tokens_unknown: valid"}},
		{"hiccups are named before they matter", func(f *Facts) { f.HiccupShare = Know(0.02) }, Valid, []string{"hiccup_share: valid"}},
		{"one of 12,031 prompts has another length", func(f *Facts) { f.PromptDifferent = Know(1. / 12031) }, Valid, []string{"prompt_tokens_different: valid"}},
		{"one in four got no connection at first", func(f *Facts) { f.Reconnected = Know(0.24) }, Degraded, []string{"reconnected_share: degraded"}},
		{"one in fifty was cut off by the end: the slowest are missing", func(f *Facts) { f.CutOffShare = Know(0.02) }, Degraded, []string{"cut_off_share: degraded"}},
		{"not a number is unknown", func(f *Facts) { f.CPUShare = Know(math.NaN()) }, Valid, nil},
		{"nearly all failed: never invalid", func(f *Facts) { f.FailedShare = Know(0.99) }, Degraded, []string{"failed_share: degraded"}},
		{"one in a hundred failed", func(f *Facts) { f.FailedShare = Know(0.01) }, Valid, []string{"failed_share: valid"}},
		{"one in a million failed", func(f *Facts) { f.FailedShare = Know(1e-6) }, Valid, []string{"failed_share: valid"}},
		{"early is not late", func(f *Facts) { f.LatenessP50 = Know(-3) }, Valid, nil},
	} {
		f := good()
		test.change(&f)
		got := Judge(f)
		var reasons []string
		for _, r := range got.Reasons {
			reasons = append(reasons, r.Metric+": "+r.Class.String())
		}
		if got.Class != test.want || !cmp.Equal(reasons, test.reasons) {
			t.Errorf("%s: %v %q, want %v %q", test.name, got.Class, reasons, test.want, test.reasons)
		}
	}
}

// TestTooFewToJudge: figures that depend on chance are not judged in a small run, however good or bad they look; facts are.
func TestTooFewToJudge(t *testing.T) {
	bad := func(f *Facts) { // as a loaded machine makes a run of three rows look
		f.LatenessP50, f.LatenessP99, f.Drift, f.WireLagP99 = Know(1000), Know(1000), Know(1e6), Know(5000)
		f.HiccupShare, f.CPUShare, f.GCPauseShare, f.ThrottledShare, f.CoalescedShare = Know(1), Know(1), Know(1), Know(1), Know(1)
	}
	small := func(f *Facts) {
		f.Served, f.Rows, f.Records, f.Scheduled, f.Wired, f.Streams, f.Elapsed = 3, 3, 3, 3, 3, 3, 0.05
	}
	for _, test := range []struct {
		name    string
		change  []func(*Facts)
		want    Class
		reasons int
		lacks   int // metrics
	}{
		{"three good rows", []func(*Facts){small}, Undecided, 0, 9},
		{"three rows on a loaded machine", []func(*Facts){small, bad}, Undecided, 0, 9},
		{"three rows, one with a prompt of another length", []func(*Facts){small, func(f *Facts) { f.PromptDifferent = Know(1. / 3) }}, Invalid, 1, 9},
		{"three rows without a record", []func(*Facts){small, func(f *Facts) { f.Records = 0 }}, Invalid, 1, 9},
		{"three rows, none served", []func(*Facts){small, func(f *Facts) { f.Served = 0 }}, Invalid, 1, 9},
		{"three rows, one failed", []func(*Facts){small, func(f *Facts) { f.FailedShare = Know(1. / 3) }}, Degraded, 1, 9},
		{"three rows, one 3 s late", []func(*Facts){small, func(f *Facts) { f.LatenessMax = Know(3000) }}, Invalid, 1, 9},
		{"enough of everything", []func(*Facts){bad}, Invalid, 9, 0},
		{"enough for a median, not for a percentile", []func(*Facts){bad, func(f *Facts) { f.Scheduled, f.Wired = 99, 99 }}, Invalid, 7, 2},
		{"99 streams and 0.9 s", []func(*Facts){bad, func(f *Facts) { f.Streams, f.Elapsed = 99, 0.9 }}, Invalid, 4, 5},
		{"what is unknown is not too little", []func(*Facts){func(f *Facts) { *f = Facts{Served: 1, Rows: 1, Records: 1} }}, Valid, 0, 0},
	} {
		f := good()
		for _, change := range test.change {
			change(&f)
		}
		v := Judge(f)
		lacks := 0
		for _, l := range v.TooFew {
			lacks += len(l.Metrics)
		}
		if v.Class != test.want || len(v.Reasons) != test.reasons || lacks != test.lacks {
			t.Errorf("%s: %d metrics too few, want %s, %d reasons, %d too few; got\n%v", test.name, lacks, test.want, test.reasons, test.lacks, v)
		}
	}
	f := good()
	small(&f)
	f.Streams, f.Elapsed = 100, 10
	const want = "too few to judge\n" +
		"  too few: 3 of the 10 scheduled requests that lateness_p50, lateness_drift need\n" +
		"  too few: 3 of the 100 scheduled requests that lateness_p99 needs\n" +
		"  too few: 3 of the 100 requests on the wire that wire_lag_p99 needs"
	v := Judge(f)
	if d := cmp.Diff(want, v.String()); d != "" {
		t.Error(d)
	}
	text, err := json.Marshal(v)
	if err != nil || !strings.Contains(string(text), `"class":"undecided"`) {
		t.Errorf("%s, %v", text, err)
	}
	if got := Text(v.Class.Word()) + ", " + Text("no summary"); got != "too few to judge, no summary" {
		t.Error(got)
	}
	var again Verdict
	if err := json.Unmarshal(text, &again); err != nil || !cmp.Equal(v, again) {
		t.Errorf("%v, %v", again, err)
	}
}

// TestNeedsFollowTheirReasons: a share of a count needs so many values that a single one is a share of at most the first bound.
func TestNeedsFollowTheirReasons(t *testing.T) {
	for i := range rules {
		switch r := &rules[i]; {
		case r.needs.of.have == nil:
		case strings.HasSuffix(r.metric, "_p99") && r.needs.enough < 100:
			t.Errorf("%s: one in a hundred of %v rounds to 0", r.metric, r.needs.enough)
		case r.unit == "%" && r.needs.of.unit != "s" && 100/r.needs.enough > r.valid:
			t.Errorf("%s: one of %v is %v %%, more than %v %%", r.metric, r.needs.enough, 100/r.needs.enough, r.valid)
		case r.unit == "%" && r.needs.of.unit == "s" && 100*0.1/r.needs.enough > r.invalid:
			t.Errorf("%s: 100 ms of %v s are %v %%, more than %v %%", r.metric, r.needs.enough, 10/r.needs.enough, r.invalid)
		}
	}
}

func TestVerdictText(t *testing.T) {
	f := good()
	f.LatenessP99, f.WireLagP99, f.PromptUnknown = Know(312), Know(137), Know(0.5)
	v := Judge(f)
	want := "invalid\n" +
		"  invalid: lateness_p99 312 ms > 250 ms: one request in a hundred was dispatched at least this long after its scheduled time\n" +
		"  degraded: wire_lag_p99 137 ms > 20 ms: one request in a hundred took this long from dispatch to the wire (building a large request, connection, upload)\n" +
		"  valid: prompt_tokens_unknown 50 % > 0 %: for this share of the requests, the row or the server gives no number of prompt tokens, so their length is not verified"
	if d := cmp.Diff(want, v.String()); d != "" {
		t.Error(d)
	}
	text, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	var again Verdict
	if err := json.Unmarshal(text, &again); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(v, again); d != "" {
		t.Error(d)
	}
	if err := new(Class).UnmarshalText([]byte("fine")); err == nil {
		t.Error("an unknown class was accepted")
	}
	// JSON has no infinity: the greatest value must still be written.
	f.LatenessMax = Know(math.Inf(1))
	if _, err := json.Marshal(Judge(f)); err != nil {
		t.Error(err)
	}
}

func TestExitCode(t *testing.T) {
	for _, test := range []struct {
		name   string
		class  Class
		ending Ending
		want   int
	}{
		{"valid", Valid, Ending{}, 0},
		{"degraded is fine", Degraded, Ending{}, 0},
		{"degraded, strictly", Degraded, Ending{Strict: true}, 3},
		{"too few to judge", Undecided, Ending{}, 0},
		{"too few to judge, strictly", Undecided, Ending{Strict: true}, 3},
		{"too few to judge, but enough failed", Undecided, Ending{GoalsMissed: true}, 1},
		{"strict leaves valid alone", Valid, Ending{Strict: true}, 0},
		{"invalid", Invalid, Ending{}, 3},
		{"goals missed", Valid, Ending{GoalsMissed: true}, 1},
		{"goals of a degraded run count", Degraded, Ending{GoalsMissed: true}, 1},
		{"an invalid run says nothing about goals", Invalid, Ending{GoalsMissed: true}, 3},
		{"an input error has precedence over all but the signal", Invalid, Ending{InputError: true, GoalsMissed: true}, 2},
		{"the signal has precedence over all", Invalid, Ending{Interrupted: true, InputError: true, GoalsMissed: true, Strict: true}, 130},
	} {
		if got := ExitCode(test.class, test.ending); got != test.want {
			t.Errorf("%s: %d, want %d", test.name, got, test.want)
		}
	}
}

// TestFromFigures: one failed row was dispatched 3 ms late, without a hiccup that would explain it. What it cannot show is unknown.
func TestFromFigures(t *testing.T) {
	a := measure.NewAggregate(measure.Options{})
	a.Add(&measure.Record{Outcome: measure.Failed, Reason: "dns", Scheduled: true, Intended: 5e6, Dispatched: 8e6, Admitted: 8e6})
	f := FromFigures(a.Figures())
	if f.Records != 1 || f.Served != 0 || f.LatenessMax != Know(3) || f.LatenessExplained != Know(0) {
		t.Errorf("%+v", f)
	}
	for name, fact := range map[string]Fact{
		"the wire lag of a row that was not sent": f.WireLagP99, "chunks without a reply": f.CoalescedShare, "drift of one row": f.Drift,
		"tokens without a reply": f.OutputShort, "hiccups, which figures do not have": f.HiccupShare,
	} {
		if fact.Known {
			t.Errorf("%s: known as %v", name, fact.V)
		}
	}
	if f.FailedShare != Know(1) {
		t.Errorf("failed share %v, want 1", f.FailedShare)
	}
}

// TestDriftNeedsSize: the lateness of twenty rows grows by a step from row to row. How that is judged depends on the duration of the run.
func TestDriftNeedsSize(t *testing.T) {
	for _, test := range []struct {
		name  string
		every time.Duration
		step  time.Duration // of lateness
		want  Class
	}{
		// 20 µs per 0.6 ms is 33,000 µs/s, and 0.38 ms in all.
		{"a run of 12 ms", 600 * time.Microsecond, 20 * time.Microsecond, Valid},
		{"0.95 ms over 19 s", time.Second, 50 * time.Microsecond, Valid},
		{"6 ms over 19 s: 316 µs/s", time.Second, 316 * time.Microsecond, Degraded},
		{"38 ms over 19 s: 2000 µs/s", time.Second, 2 * time.Millisecond, Invalid},
	} {
		a := measure.NewAggregate(measure.Options{})
		for i := range time.Duration(20) {
			at := time.Second + i*test.every
			a.Add(&measure.Record{Outcome: measure.Cancelled, Scheduled: true, Intended: at, Dispatched: at + i*test.step, Admitted: at + i*test.step})
		}
		f := good()
		f.Drift = FromFigures(a.Figures()).Drift
		if v := Judge(f); v.Class != test.want {
			t.Errorf("%s: %v, want %v", test.name, v, test.want)
		}
	}
}

// The package comment quotes the table that the code applies, and gives the reason for each row. go test -update rewrites it, except for
// the reasons.
func TestTableInThePackageComment(t *testing.T) {
	text, err := os.ReadFile("judge.go")
	if err != nil {
		t.Fatal(err)
	}
	const from, to = "can be compared.\n//\n", "package judge\n"
	head, rest, ok := strings.Cut(string(text), from)
	old, tail, ok2 := strings.Cut(rest, to)
	if !ok || !ok2 {
		t.Fatal("the package comment has lost its table's place")
	}
	because := map[string]string{} // reasons, by metric
	for line := range strings.Lines(old) {
		if cells := []rune(strings.TrimSuffix(line, "\n")); len(cells) > 3+75 {
			because[strings.TrimSpace(string(cells[3:3+25]))] = string(cells[3+75:])
		}
	}
	var b strings.Builder
	b.WriteString("//\t" + pad("metric", 25) + pad("valid ≤", 12) + pad("invalid >", 12) + pad("needs", 26) + "because\n")
	for i := range rules {
		r := &rules[i]
		why := because[r.metric]
		if why == "" {
			t.Errorf("the package comment does not say why the bounds of %s are where they are", r.metric)
		}
		needs := ""
		if r.needs.of.have != nil {
			needs = number(r.needs.enough) + " " + r.needs.of.unit
		}
		b.WriteString("//\t" + pad(r.metric, 25) + pad(bound(r, r.valid, "always"), 12) + pad(bound(r, r.invalid, "never"), 12) + pad(needs, 26) + why + "\n")
	}
	if old == b.String() {
		return
	}
	if !*update {
		t.Fatalf("the table in the package comment is not the code's (run with -update):\n%s", cmp.Diff(b.String(), old))
	}
	if err := os.WriteFile("judge.go", []byte(head+from+b.String()+to+tail), 0o600); err != nil {
		t.Fatal(err)
	}
}

// bound formats a bound for people.
func bound(r *rule, v float64, infinite string) string {
	if math.IsInf(v, 1) {
		return infinite
	}
	return withUnit(number(v), r.unit)
}

func pad(s string, n int) string { return s + strings.Repeat(" ", n-len([]rune(s))) }
