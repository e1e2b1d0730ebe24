// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
)

// shadowLoop is live production with a shadow behind it: application → engine, application → Collector → journals → shadow → another engine.
type shadowLoop struct {
	t                        *testing.T
	dir, bin                 string
	production, target, otlp string // addresses
	journals, out            string
	window, delay            time.Duration

	targets int // that were started
	kills   []shadowKill
}

// shadowKill is when a part was killed, and when it was back.
type shadowKill struct {
	part       string
	from, till time.Time
}

const shadowCollector = `receivers:
  mooncake:
    protocols:
      grpc:
        endpoint: %s
    hash_key: ${env:MOONLOOP_HASH_KEY}
exporters:
  mooncake:
    directory: %s
    compile: false
    rotation:
      max_age: 1m
service:
  telemetry:
    metrics:
      level: none
  pipelines:
    traces:
      receivers: [mooncake]
      exporters: [mooncake]
`

// The engines are alike.
var shadowEngine = []string{
	"simulate", "--like", "vllm", "--prefill", "20ms", "--prefill-per-token", "20us", "--decode", "8ms", "--record-writes=false",
}

func (l *shadowLoop) startEngine(name, address string) *process {
	l.t.Helper()
	args := append(slices.Clone(shadowEngine), "--listen", address, "--record", filepath.Join(l.dir, name+".jsonl"))
	p := start(l.t, l.dir, name, nil, l.bin, args...)
	p.find(l.t, listening)
	return p
}

func (l *shadowLoop) startTarget() *process {
	l.t.Helper()
	l.targets++
	return l.startEngine(fmt.Sprintf("target-%d", l.targets), l.target)
}

func (l *shadowLoop) startCollector(n int) *process {
	l.t.Helper()
	config := filepath.Join(l.dir, "otelcol.yaml")
	if err := os.WriteFile(config, fmt.Appendf(nil, shadowCollector, l.otlp, l.journals), 0o644); err != nil {
		l.t.Fatal(err)
	}
	p := start(l.t, l.dir, fmt.Sprintf("otelcol-%d", n), []string{"MOONLOOP_HASH_KEY=" + strings.Repeat("5eed", 16)}, setting(l.t, "MOONLOOP_OTELCOL"), "--config", config)
	p.awaitConnections(l.t, l.otlp)
	return p
}

func (l *shadowLoop) startApp(n int, rate float64) *process {
	l.t.Helper()
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	return start(l.t, l.dir, fmt.Sprintf("app-%d", n), []string{fmt.Sprintf("%s=%s %s %g %d", appVariable, l.production, l.otlp, rate, n)}, self)
}

func (l *shadowLoop) startShadow(n int) *process {
	l.t.Helper()
	return start(l.t, l.dir, fmt.Sprintf("shadow-%d", n), nil, l.bin, "shadow", l.journals, "--out", l.out, "--allow-target", "http://"+l.target,
		"--window", l.window.String(), "--delay", l.delay.String(), "--history", "1h", "--json", "--", "--url", "http://"+l.target, "--model", "sim")
}

// kill ends a process as kill -9 does, and starts it again after some time.
func (l *shadowLoop) kill(part string, p *process, down time.Duration, again func() *process) *process {
	l.t.Helper()
	k := shadowKill{part: part, from: time.Now()}
	if err := p.cmd.Process.Kill(); err != nil {
		l.t.Fatalf("%s: %v", part, err)
	}
	<-p.done
	time.Sleep(down)
	p = again()
	k.till = time.Now()
	l.kills = append(l.kills, k)
	return p
}

// shadowRate is the average rate of the application, in requests per second. It rises and falls by 70 % each minute.
const shadowRate = 3

// TestAcceptanceShadow follows a live production for as long as MOONLOOP_SHADOW says, and kills each part once. The engines' own records
// show who sent what and when, and the shadow's files show the result of each row: its own counts are compared with both.
func TestAcceptanceShadow(t *testing.T) {
	length, err := time.ParseDuration(setting(t, "MOONLOOP_SHADOW"))
	if err != nil || length < 2*time.Minute {
		t.Fatalf("MOONLOOP_SHADOW=%s: want a duration of 2m or more, such as 20m", os.Getenv("MOONLOOP_SHADOW"))
	}
	dir := artefacts(t)
	l := &shadowLoop{
		t: t, dir: dir, bin: setting(t, "MOONLOOP_BIN"), target: testport.Address(t), otlp: testport.Address(t),
		journals: filepath.Join(dir, "journals"), out: filepath.Join(dir, "shadow"),
		window: min(time.Minute, (length / 20).Truncate(time.Second)),
	}
	l.delay = l.window*2 + 25*time.Second
	mkdir(t, l.journals)
	collector, target := l.startCollector(1), l.startTarget()
	production := l.startEngine("production", testport.Address(t))
	l.production = production.find(t, listening)
	shadow := l.startShadow(1)
	app := l.startApp(1, shadowRate)
	begun := time.Now()
	at := func(share float64) { time.Sleep(time.Until(begun.Add(time.Duration(share * float64(length))))) }

	at(0.3)
	collector = l.kill("Collector", collector, 3*time.Second, func() *process { return l.startCollector(2) })
	at(0.45)
	app = l.kill("application", app, 3*time.Second, func() *process { return l.startApp(2, shadowRate) })
	at(0.6)
	target = l.kill("engine under test", target, 5*time.Second, l.startTarget)
	at(0.8)
	shadow = l.kill("shadow", shadow, 5*time.Second, func() *process { return l.startShadow(2) })
	at(1)
	app.stop(t)
	equal(t, "exit status of the application", app.code, 0)
	time.Sleep(l.delay + 2*l.window + 10*time.Second) // the last rows, and their reports
	shadow.stop(t)
	equal(t, "exit status of the shadow", shadow.code, 0)
	production.stop(t)
	target.stop(t)
	collector.stop(t)
	l.check()
}

// shadowTruth is a request as production's engine recorded it.
type shadowTruth struct {
	at   time.Time
	span string // of the client
}

// engineTimes reads the record of an engine, by time. Requests that are not streamed are calibration.
func engineTimes(t *testing.T, name string) (all []shadowTruth) {
	t.Helper()
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(content) {
		var r engineRecord
		if err := json.Unmarshal(line, &r); err != nil {
			if bytes.HasSuffix(line, []byte("\n")) {
				t.Fatalf("%s: %v", name, err)
			}
			continue // torn by a kill
		}
		if !r.Request.Stream {
			continue
		}
		one := shadowTruth{at: r.Time}
		if parent, ok := parentSpan(r.Header["Traceparent"]); ok {
			one.span = hex.EncodeToString(parent[:])
		}
		all = append(all, one)
	}
	slices.SortFunc(all, func(a, b shadowTruth) int { return a.at.Compare(b.at) })
	return all
}

// shadowRow is what the shadow's files say about a row.
type shadowRow struct {
	at       float64 // ms since the epoch
	plans    int
	sent     int // results that say that it was sent
	outcome  string
	dropped  string
	lateness float64 // ms
}

// ledger reads plans, drops and results, without the project's readers.
func (l *shadowLoop) ledger() map[string]*shadowRow {
	t := l.t
	t.Helper()
	rows := map[string]*shadowRow{}
	each := func(pattern string, line func([]byte) error) {
		names, err := filepath.Glob(filepath.Join(l.out, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			f, err := os.Open(name)
			if err != nil {
				t.Fatal(err)
			}
			for in := bufio.NewReaderSize(f, 1<<20); ; {
				text, err := in.ReadBytes('\n')
				if err != nil { // the end, or a line that a kill has torn
					break
				}
				if err := line(text); err != nil {
					t.Errorf("%s: %v", name, err)
				}
			}
			_ = f.Close()
		}
	}
	type ids struct {
		OTel struct {
			Span string `json:"span_id"`
		} `json:"otel"`
		Timestamp float64 `json:"timestamp"`
	}
	each("plans/*.jsonl", func(line []byte) error {
		var r ids
		err := json.Unmarshal(line, &r)
		if rows[r.OTel.Span] == nil {
			rows[r.OTel.Span] = &shadowRow{at: r.Timestamp}
		}
		rows[r.OTel.Span].plans++
		return err
	})
	each("plans/*.dropped", func(line []byte) error {
		var d struct {
			Span   string `json:"span_id"`
			Reason string `json:"reason"`
		}
		err := json.Unmarshal(line, &d)
		r := rows[d.Span]
		if r == nil || r.dropped != "" {
			t.Errorf("row %s was dropped as %s, and is %+v", d.Span, d.Reason, r)
			return err
		}
		r.dropped = d.Reason
		return err
	})
	results := func(line []byte) error {
		var r struct {
			ids
			Result struct {
				Outcome  string   `json:"outcome"`
				Reason   string   `json:"reason"`
				Lateness *float64 `json:"lateness_ms"`
			} `json:"result"`
		}
		if err := json.Unmarshal(line, &r); err != nil {
			return err
		}
		if r.Result.Outcome == "skipped" {
			return nil
		}
		row := rows[r.OTel.Span]
		if row == nil {
			t.Errorf("row %s was sent, and is in no plan", r.OTel.Span)
			return nil
		}
		row.sent++
		row.outcome = r.Result.Outcome
		if r.Result.Lateness != nil {
			row.lateness = *r.Result.Lateness
		}
		return nil
	}
	each("run-*/requests.jsonl", results)
	each("run-*/requests.jsonl.partial", results) // of a replay that was killed
	return rows
}

// check compares the engines' records, the shadow's files and its reports with one another.
func (l *shadowLoop) check() {
	t := l.t
	t.Helper()
	truth := engineTimes(t, filepath.Join(l.dir, "production.jsonl"))
	var seen []shadowTruth
	for n := range l.targets {
		seen = append(seen, engineTimes(t, filepath.Join(l.dir, fmt.Sprintf("target-%d.jsonl", n+1)))...)
	}
	rows := l.ledger()
	killed := map[string]shadowKill{}
	for _, k := range l.kills {
		killed[k.part] = k
	}

	// Each request of production is one row, which was sent once or dropped for one reason, unless the application was killed before it
	// had exported the span.
	reasons, outcomes, lost, wrong := map[string]int64{}, map[string]int64{}, 0, 0
	sent := 0
	for _, r := range truth {
		row := rows[r.span]
		if row == nil {
			lost++
			if d := killed["application"].from.Sub(r.at); d < 0 || d > 10*time.Second {
				t.Errorf("the request of %v is not a row, and the application was killed %v later", r.at, d)
			}
			continue
		}
		if row.plans != 1 || row.sent > 1 || (row.sent == 1) == (row.dropped != "") {
			wrong++
			t.Errorf("row %s of %v is %+v", r.span, r.at, *row)
		}
		sent += row.sent
		if row.dropped != "" {
			reasons[row.dropped]++
		} else {
			outcomes[row.outcome]++
		}
	}
	note(t, "requests of production", len(truth))
	equal(t, "rows, and requests that were lost with the application", len(rows)+lost, len(truth))
	equal(t, "rows that are not sent once or dropped once", wrong, 0)
	note(t, "lost with the application", lost)
	note(t, "outcomes", fmt.Sprint(outcomes))
	note(t, "dropped", fmt.Sprint(reasons))
	if more := len(seen) - sent; more > int(reasons["interrupted"]) {
		t.Errorf("the engine had %d requests, %d rows were sent and %d interrupted: some were sent twice", len(seen), sent, reasons["interrupted"])
	}

	// The shadow's own counts.
	reports := l.reports()
	last := reports[len(reports)-1]
	equal(t, "rows, by the shadow's own count", last.Totals.Rows, int64(len(rows)))
	equal(t, "outcomes by its own count", fmt.Sprint(last.Totals.Outcomes), fmt.Sprint(outcomes))
	equal(t, "drops by its own count", fmt.Sprint(last.Totals.Dropped), fmt.Sprint(reasons))
	equal(t, "in flight at the end", last.Totals.InFlight, 0)

	// The lag is bounded, and does not grow. Rows were dropped because of a kill, apart from what a busy machine delayed.
	var lags, early, late []float64
	middle := truth[len(truth)/2].at
	elsewhere := 0
	for _, r := range truth {
		row := rows[r.span]
		if row == nil {
			continue
		}
		if row.sent == 0 || row.outcome != "served" {
			if !l.near(r.at.Add(l.delay), 10*time.Second) {
				elsewhere++
			}
			continue
		}
		lags = append(lags, row.lateness)
		if r.at.Before(middle) {
			early = append(early, row.lateness)
		} else {
			late = append(late, row.lateness)
		}
	}
	below(t, "lag, p50, ms", quantile(lags, 0.5), 100)
	below(t, "lag, p99, ms", quantile(lags, 0.99), 2000)
	below(t, "lag, max, ms", quantile(lags, 1), 6000)
	below(t, "lag of the second half less that of the first, p50, ms", quantile(late, 0.5)-quantile(early, 0.5), 50)
	below(t, "rows not served, except around a kill, %", 100*float64(elsewhere)/float64(len(truth)), 1)

	// The rate of the replay in each second is production's, by the two engines' records. Left out are the seconds near a kill, and those
	// whose spans were lost with the application.
	type counts struct{ production, target int }
	second, ten := map[int64]counts{}, map[int64]counts{}
	for i, list := range [][]shadowTruth{truth, seen} {
		for _, r := range list {
			event := r.at
			if i == 1 {
				event = event.Add(-l.delay)
			}
			if l.near(event.Add(l.delay), 10*time.Second) || l.lostAt(event, killed["application"].from) {
				continue
			}
			for width, in := range map[int64]map[int64]counts{1: second, 10: ten} {
				c := in[event.Unix()/width]
				if i == 0 {
					c.production++
				} else {
					c.target++
				}
				in[event.Unix()/width] = c
			}
		}
	}
	apart := func(in map[int64]counts) float64 {
		off, all := 0, 0
		for _, c := range in {
			off, all = off+max(c.production-c.target, c.target-c.production), all+c.production
		}
		return 100 * float64(off) / float64(2*all)
	}
	equalSeconds := 0
	for _, c := range second {
		if c.production == c.target {
			equalSeconds++
		}
	}
	note(t, "seconds with requests that are compared", len(second))
	note(t, "of them with as many requests in the replay, %", fmt.Sprintf("%.1f", 100*float64(equalSeconds)/float64(len(second))))
	below(t, "requests in a different second than production's, %", apart(second), 8)
	below(t, "requests in a different ten seconds than production's, %", apart(ten), 2)
	if len(second) < int(0.3*truth[len(truth)-1].at.Sub(truth[0].at).Seconds()) {
		t.Errorf("void: %d seconds were compared", len(second))
	}
	if err := l.picture(truth, seen, rows); err != nil {
		t.Error(err)
	}
	t.Logf("%d processors, %s/%s; window %v, delay %v\n%s", runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, l.window, l.delay, l.table(reports))
}

// near reports whether a moment of the replay is close to the time in which the shadow or the engine under test was away.
func (l *shadowLoop) near(at time.Time, margin time.Duration) bool {
	return slices.ContainsFunc(l.kills, func(k shadowKill) bool {
		return k.part != "application" && k.part != "Collector" && at.After(k.from.Add(-margin)) && at.Before(k.till.Add(margin))
	})
}

// lostAt reports whether a request's span may have been lost with the application.
func (l *shadowLoop) lostAt(at, kill time.Time) bool {
	return at.After(kill.Add(-10*time.Second)) && at.Before(kill.Add(time.Second))
}

// shadowReport is a line of reports.jsonl.
type shadowReport struct {
	From     time.Time        `json:"from"`
	Rows     int64            `json:"rows"`
	Outcomes map[string]int64 `json:"outcomes"`
	Dropped  map[string]int64 `json:"dropped"`
	Lag      *struct{ P50, P99, Max float64 }
	Seconds  struct{ Seconds, Equal int64 }
	Twin     *struct{ Answer string }
	Totals   struct {
		Rows     int64
		Outcomes map[string]int64
		Dropped  map[string]int64
		InFlight int64 `json:"in_flight"`
	}
}

// reports returns the reports of all windows, once each: after a kill between a report and the state that records it, the file has it twice.
func (l *shadowLoop) reports() (all []shadowReport) {
	l.t.Helper()
	for _, r := range readLines[struct {
		shadowReport
		LagMS *struct{ P50, P99, Max float64 } `json:"lag_ms"`
	}](l.t, filepath.Join(l.out, "reports.jsonl")) {
		r.Lag = r.LagMS
		if n := len(all); n > 0 && all[n-1].From.Equal(r.From) {
			all = all[:n-1]
		}
		all = append(all, r.shadowReport)
	}
	if len(all) == 0 {
		l.t.Fatal("there is no report")
	}
	return all
}

// table returns a table of the kills and the windows, for the documentation.
func (l *shadowLoop) table(reports []shadowReport) string {
	var b strings.Builder
	for _, k := range l.kills {
		fmt.Fprintf(&b, "%s: killed at %s, back after %.1f s\n", k.part, k.from.UTC().Format("15:04:05"), k.till.Sub(k.from).Seconds())
	}
	for _, r := range reports {
		if r.Rows == 0 {
			continue
		}
		fmt.Fprintf(&b, "%s rows %d %v dropped %v", r.From.Format("15:04:05"), r.Rows, r.Outcomes, r.Dropped)
		if r.Lag != nil {
			fmt.Fprintf(&b, " lag %.1f %.1f %.1f", r.Lag.P50, r.Lag.P99, r.Lag.Max)
		}
		fmt.Fprintf(&b, " seconds %d of %d", r.Seconds.Equal, r.Seconds.Seconds)
		if r.Twin != nil {
			fmt.Fprintf(&b, " twin %s", r.Twin.Answer)
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// quantile returns a quantile by nearest rank.
func quantile(v []float64, q float64) float64 {
	if len(v) == 0 {
		return math.NaN()
	}
	v = slices.Sorted(slices.Values(v))
	return v[max(0, int(math.Ceil(q*float64(len(v))))-1)]
}
