// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/moonloop/moonloop/agent/report/lines"
)

// folder writes a run's folder with the given files.
func folder(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const smallSummary = `{"schema_version":"1.0","run":{"id":"run-1","labels":{"commit":"a<b"},"version":"v9, go1.26.8 linux/amd64","platform":"linux/amd64","command":"moonloop replay t.jsonl --url http://e","target":"e","model":"m"},
"start_time":"2026-11-01T10:00:00Z","end_time":"2026-11-01T10:01:00Z","was_cancelled":false,"warnings":["a burst of <2>: --spread=uniform spreads it"],
"verdict":{"class":"degraded","reasons":[{"metric":"hiccup_share","value":30.5,"bound":10,"unit":"%","class":"degraded","text":"the machine held the client up","shard":"2/4"}],
"too_few":[{"metrics":["lateness_p99"],"have":3,"need":100,"of":"scheduled requests"}]},
"time_to_first_token":{"unit":"ms","avg":20,"min":10,"max":40,"p50":20,"p90":35,"p99":40,"count":3},
"trace":{"name":"t.jsonl","seq_digest":"abc"},"error_summary":[{"error_details":{"type":"500","message":"engine fell over"},"count":1}]}`

// line returns the record of a request that was served.
func line(row int, intended, ttft, gap float64, chunks int) string {
	gaps := make([]string, max(chunks-1, 0))
	for i := range gaps {
		gaps[i] = fmt.Sprint(gap)
	}
	end := intended + ttft + gap*float64(chunks-1)
	return fmt.Sprintf(`{"timestamp": 0, "input_length": 1000, "output_length": %d, "hash_ids": [1, 2], "observed": {"cached_tokens": 400}, "result": {"outcome":"served","row":%d,`+
		`"intended":%g,"dispatched":%g,"admitted":%g,"start":%g,"wire":%g,"first":%g,"last":%g,"end":%g,"lateness_ms":0,"gaps_ms":[%s],`+
		`"usage":{"prompt_tokens":1000,"completion_tokens":%d,"cached_tokens":512},"predicted_cached_tokens":512,"trace_id":"0123456789abcdef0123456789abcdef"}}`,
		chunks, row, intended, intended, intended, intended, intended, intended+ttft, end, end, strings.Join(gaps, ","), chunks) + "\n"
}

func render(t *testing.T, r *Run) string {
	t.Helper()
	var b bytes.Buffer
	if err := r.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func load(t *testing.T, dir string) *Run {
	t.Helper()
	r, err := Load(dir, 0)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var dataScript = regexp.MustCompile(`(?s)<script type="application/json" id="data">(.*?)</script>`)

// data returns what the page's script reads.
func data(t *testing.T, html string) charts {
	t.Helper()
	found := dataScript.FindStringSubmatch(html)
	if found == nil {
		t.Fatal("the page has no data")
	}
	var c charts
	if err := json.Unmarshal([]byte(found[1]), &c); err != nil {
		t.Fatal(err)
	}
	return c
}

func TestPageOfARun(t *testing.T) {
	records := line(0, 1000, 10, 5, 3) + line(1, 1500, 20, 5, 3) + line(2, 2600, 40, 5, 3) +
		`{"input_length": 7, "output_length": 1, "result": {"outcome":"failed","reason":"500","row":3,"intended":2700,"dispatched":2700,"start":2700,"end":2750}}` + "\n"
	dir := folder(t, map[string]string{summaryFile: smallSummary, lines.File: records})
	r := load(t, dir)
	r.TraceURL = "http://localhost:16686/trace/{trace_id}"
	html := render(t, r)
	for _, want := range []string{
		"Degraded: usable, with the reasons below", "the machine held the client up", "30.5 %", "shard 2/4:",
		"too few: 3 of the 100 scheduled requests that lateness_p99 needs", "<dd>v9, go1.26.8 linux/amd64</dd>", "<dt>Label commit</dt><dd>a&lt;b</dd>", "moonloop replay t.jsonl --url http://e",
		"engine fell over", `a burst of &lt;2&gt;: <span class="flag">--spread=uniform</span> spreads it`, `href="http://localhost:16686/trace/0123456789abcdef0123456789abcdef"`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	s := data(t, html).Series
	sum := func(rates []float64) (n float64) {
		for _, v := range rates {
			n += v * s.Width
		}
		return n
	}
	var tokens []float64
	for _, v := range s.Tokens {
		tokens = append(tokens, *v)
	}
	if got := []float64{sum(s.Intended), sum(s.Sent), sum(s.Finished), sum(s.Unserved), sum(tokens)}; !slices.Equal(got, []float64{4, 4, 4, 1, 9}) {
		t.Errorf("scheduled, sent, finished, unserved and tokens add up to %v", got)
	}
	if s.Time[0] != 1 || s.InFlight[len(s.InFlight)-1] != 0 {
		t.Errorf("time begins at %v, and %v requests are in flight at the end", s.Time[0], s.InFlight[len(s.InFlight)-1])
	}
	if *s.Cached[0] != 51.2 || *s.Predicted[0] != 51.2 || *s.Observed[0] != 40 {
		t.Errorf("cached %v %%, predicted %v %%, in production %v %%", *s.Cached[0], *s.Predicted[0], *s.Observed[0])
	}
	if at := r.byTTFT.rows[0]; at.Row != 2 || at.TTFT != 40 {
		t.Errorf("slowest by TTFT is row %d with %v ms", at.Row, at.TTFT)
	}
	// Nothing happened in the first second, as in a warm-up: the page counts time as requests.jsonl does, nevertheless.
	if want := `<td class="n">2</td><td class="n">2.6</td>`; !strings.Contains(html, want) {
		t.Errorf("the page does not say that row 2 was due at 2.6 s: %s", want)
	}
}

// The page shows the figures of the steady state, as the final table does, says so, and marks it in the charts.
func TestSteadyState(t *testing.T) {
	with := strings.Replace(smallSummary, "{", `{"slo":"ttft=50ms","good_request_fraction":{"unit":"ratio","avg":0.985},
"steady_state":{"window":{"automatic":true,"from_ms":1049.8,"to_ms":8160.8,"zero_ms":3393.2},"rows":{"total":1650,"served":1640,"failed":10},
"time_to_first_token":{"unit":"ms","avg":31,"min":10,"max":60,"p50":32.1,"p90":35,"p99":48,"count":1640},"good_request_fraction":{"unit":"ratio","avg":0.432}},`, 1)
	for zero, want := range map[string]string{ // earlier versions wrote no zero_ms
		`,"zero_ms":3393.2`: "and a goal for goodput cover 1.05 to 8.16 s of the schedule, shaded in the charts (4.44 to 11.6 s): 1,650 requests that were sent then, 1,640 served, 10 failed",
		"":                  "cover 1.05 to 8.16 s of the schedule: 1,650",
	} {
		summary := strings.Replace(with, `,"zero_ms":3393.2`, zero, 1)
		html := render(t, load(t, folder(t, map[string]string{summaryFile: summary, lines.File: line(0, 5000, 20, 5, 3)})))
		for _, want := range []string{want, "Figures of the steady state", ">1,640 <span>of 1,650<", ">32.1 <span>ms p50<", ">43.2 <span>%<"} {
			if !strings.Contains(html, want) {
				t.Errorf("the page does not say %q", want)
			}
		}
		if got := data(t, html).Steady; zero == "" && got != nil || zero != "" && (len(got) != 2 || got[0] != 4.443 || got[1] != 11.554) {
			t.Errorf("%v is shaded", got)
		}
	}
	if html := render(t, load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: line(0, 0, 20, 5, 3)}))); strings.Contains(html, "Steady state: ") {
		t.Error("the page of a run without a steady state mentions one")
	}
}

// The page of a resumed run says where its charts leave out a break.
func TestResumed(t *testing.T) {
	if got := data(t, render(t, load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: line(0, 0, 20, 5, 3)})))).Breaks; got != nil {
		t.Errorf("a run in one piece is marked at %v", got)
	}
	summary := strings.Replace(smallSummary, "{", `{"resumed":{"parts":[{"from_ms":0,"to_ms":9800},{"from_ms":10000,"to_ms":15000,"gap_ms":5200}],"rows_in_flight":3},`, 1)
	old := render(t, load(t, folder(t, map[string]string{summaryFile: summary, lines.File: line(0, 0, 20, 5, 3)})))
	if data(t, old).Breaks != nil || strings.Contains(old, "dashed line") {
		t.Error("the page of an earlier version's run marks a break at a place that it does not know")
	}
	summary = strings.Replace(summary, `"rows_in_flight"`, `"zero_ms":2500,"rows_in_flight"`, 1)
	html := render(t, load(t, folder(t, map[string]string{summaryFile: summary, lines.File: line(0, 0, 20, 5, 3)})))
	if got := data(t, html).Breaks; !slices.Equal(got, []float64{12.5}) {
		t.Errorf("the charts mark %v s, want 12.5", got)
	}
	for _, want := range []string{"The run was cut short at 10 s of the schedule (resumed after 5.2 s).", "leave out the time", "mark with a dashed line where it was cut short", "3 rows that were in flight then count as cancelled"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

// Without its script, the page says that the charts are missing, and why. The script hides that: a noscript element would not do, since
// browsers show none where scripts were only removed, or are blocked by a policy.
func TestPageWithoutScript(t *testing.T) {
	html := render(t, load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: line(0, 0, 20, 5, 3)})))
	for _, want := range []string{
		`<p class="unscripted">The charts are missing because the script of this page did not run`,
		`:root.script .unscripted, :root:not(.script) .scripted, :root:not(.script) .charts { display: none; }`, `root.classList.add("script")`,
	} {
		if !strings.Contains(html, want) {
			t.Errorf("the page has no %q", want)
		}
	}
}

// Paper does not scroll and has no lists to open, so the style for print wraps what scrolls on the screen, and the script opens lists.
func TestPrint(t *testing.T) {
	_, print, found := strings.Cut(pageCSS, "@media print {")
	if !found {
		t.Fatal("no style for print")
	}
	scrolls := regexp.MustCompile(`(?m)^([^@{}]+) \{[^}]*overflow-x: auto`).FindAllStringSubmatch(pageCSS, -1)
	if len(scrolls) == 0 {
		t.Error("nothing scrolls")
	}
	visible := regexp.MustCompile(`(?m)^ *([^{}]+) \{ overflow: visible; \}`).FindStringSubmatch(print)
	for _, s := range scrolls {
		if visible == nil || !slices.Contains(strings.Split(visible[1], ", "), s[1]) {
			t.Errorf("%s scrolls on paper", s[1])
		}
	}
	if !strings.Contains(pageJS, `addEventListener("beforeprint"`) {
		t.Error("closed lists stay closed on paper")
	}
}

// Texts from the folder are text on the page, never markup, script or a link to follow.
func TestHostileText(t *testing.T) {
	const evil = `</script><script>alert(1)</script><img src=x onerror=alert(2)>`
	quoted, err := json.Marshal(evil)
	if err != nil {
		t.Fatal(err)
	}
	summary := strings.NewReplacer(`"t.jsonl"`, string(quoted), `"engine fell over"`, string(quoted), `"500"`, string(quoted), `"m"`, string(quoted),
		`"the machine held the client up"`, string(quoted)).Replace(smallSummary)
	records := strings.Replace(line(0, 0, 1, 1, 2), `"0123456789abcdef0123456789abcdef"`, string(quoted), 1) +
		`{"model": ` + string(quoted) + `, "result": {"outcome":` + string(quoted) + `,"reason":` + string(quoted) + `,"row":1}}` + "\n"
	html := render(t, load(t, folder(t, map[string]string{summaryFile: summary, lines.File: records})))
	if strings.Contains(html, "<script>alert") || strings.Contains(html, "<img") {
		t.Error("text of the folder became markup")
	}
	if n := strings.Count(html, "<script"); n != 3 {
		t.Errorf("%d scripts, want the data, the library and the page's own", n)
	}
	for _, address := range []string{"javascript:alert(1)//{trace_id}", "http://user:word@host/{trace_id}", "http://localhost/", "ftp://h/{trace_id}", "{trace_id}"} {
		r := load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: line(0, 0, 1, 1, 2)}))
		r.TraceURL = address
		if err := r.Write(&bytes.Buffer{}); err == nil {
			t.Errorf("%s is not the address of a trace, but was accepted", address)
		}
	}
}

// The policy in the page names its scripts and styles by hash, so a changed byte would keep a browser from running them.
func TestContentSecurityPolicy(t *testing.T) {
	html := render(t, load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: line(0, 0, 1, 1, 2)})))
	policy := regexp.MustCompile(`Content-Security-Policy" content="([^"]*)"`).FindStringSubmatch(html)
	if policy == nil {
		t.Fatal("no policy")
	}
	allowed := strings.NewReplacer("&#39;", "'", "&#43;", "+", "&amp;", "&").Replace(policy[1])
	inline := regexp.MustCompile(`(?s)<(script|style)>(.*?)</(?:script|style)>`).FindAllStringSubmatch(html, -1)
	if len(inline) != 3 {
		t.Fatalf("%d inline scripts and styles", len(inline))
	}
	for _, in := range inline {
		if !strings.Contains(allowed, "'"+hash(in[2])+"'") {
			t.Errorf("the policy does not allow a %s of %d bytes", in[1], len(in[2]))
		}
	}
	if external := regexp.MustCompile(`(?:src|href)="(?:https?:)?//[^"]*"`).FindAllString(html, -1); external != nil {
		t.Errorf("the page refers to other addresses: %q", external)
	}
}

func TestKilledRun(t *testing.T) {
	records := line(0, 0, 10, 5, 3) + line(1, 100, 20, 5, 3) + `{"input_length": 7, "resu`
	html := render(t, load(t, folder(t, map[string]string{lines.Partial: records})))
	for _, want := range []string{"This run did not end", "Only requests that had ended", "Time to First Token", "of 2"} {
		if !strings.Contains(html, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
}

func TestFoldersWithoutARun(t *testing.T) {
	for name, c := range map[string]struct {
		files map[string]string
		want  string
	}{
		"empty":           {nil, "no replay wrote its results there"},
		"a trace":         {map[string]string{lines.File: `{"timestamp": 0, "input_length": 1, "output_length": 1, "hash_ids": [1]}` + "\n"}, "this is a trace"},
		"no records":      {map[string]string{summaryFile: smallSummary, lines.File: ""}, "has no records"},
		"binary":          {map[string]string{lines.File: "\x00\x01\x02\n\x03\n"}, "line 1"},
		"broken summary":  {map[string]string{summaryFile: `{"schema`, lines.File: line(0, 0, 1, 1, 1)}, "not the summary of a replay"},
		"not a summary":   {map[string]string{summaryFile: `{"a": 1}`, lines.File: line(0, 0, 1, 1, 1)}, "not the summary of a replay"},
		"a wrong field":   {map[string]string{lines.File: `{"result": {"row": "one"}}` + "\n"}, "line 1: result.row is a string; want an integer"},
		"a wrong figure":  {map[string]string{summaryFile: strings.Replace(smallSummary, "{", `{"goodput": {"p50": "one"},`, 1), lines.File: line(0, 0, 1, 1, 1)}, "goodput: p50 is a string; want a number"},
		"torn midway":     {map[string]string{lines.Partial: line(0, 0, 1, 1, 1) + "{\"input\n" + line(1, 0, 1, 1, 1)}, "line 2"},
		"torn, but ended": {map[string]string{summaryFile: smallSummary, lines.File: line(0, 0, 1, 1, 1) + "{\"input"}, "line 2"},
	} {
		_, err := Load(folder(t, c.files), 0)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}

// Numbers that no replay writes neither panic nor hang, and the page's data stays JSON.
func TestHostileNumbers(t *testing.T) {
	records := line(0, 0, 10, 5, 3)
	for _, v := range []string{"-1", "1e300", "-1e300", "1e-300", "9223372036854775807"} {
		records += strings.NewReplacer(`"intended":0`, `"intended":`+v, `"end":20`, `"end":`+v, `"gaps_ms":[5,5]`, `"gaps_ms":[`+v+`,5]`).Replace(line(1, 0, 10, 5, 3))
		records += strings.NewReplacer(`"first":10`, `"first":`+v).Replace(line(2, 0, 10, 5, 3))
	}
	records += `{"input_length": -5, "output_length": 9223372036854775807, "result": {"outcome":"served","row":-1,"start":0,"wire":0,"first":0,"last":0,"end":0,"intended":0,"gaps_ms":[1,1,1],"usage":{"cached_tokens":-5}}}` + "\n"
	html := render(t, load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: records})))
	if s := data(t, html).Series; len(s.Time) > maxBins {
		t.Errorf("%d bins", len(s.Time))
	}
}

// However long a run is, no count is lost when bins are merged, and percentiles stay within their error.
func TestTimelineMerges(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for _, span := range []float64{900, firstWidth * maxBins * 0.99, firstWidth * maxBins * 1.01, 3.6e6, 9e7} {
		line := timeline{width: firstWidth, most: maxBins, digits: 2}
		var late []float64
		for range 2000 {
			at, ms := random.Float64()*span, math.Exp(random.NormFloat64()*2)
			line.add(&record{Result: result(at, ms)})
			late = append(late, ms)
		}
		slices.Sort(late)
		var all bin
		for i := range line.bins {
			all.merge(&line.bins[i])
		}
		if all.intended != 2000 || all.sent != 2000 || all.finished != 2000 || len(line.bins) > maxBins {
			t.Errorf("%.0f ms: %d scheduled, %d sent, %d finished in %d bins", span, all.intended, all.sent, all.finished, len(line.bins))
		}
		for _, q := range []float64{0.5, 0.9, 0.99} {
			got, want := all.late.millis(q), late[int(math.Ceil(q*2000))-1]
			if math.Abs(got-want) > 0.01*want+0.001 {
				t.Errorf("%.0f ms: quantile %v is %v, want %v", span, q, got, want)
			}
		}
	}
}

// A request's latency ends with its last token, in the table of the slowest requests too: what follows that token is no latency.
func TestLatencyEndsWithTheLastToken(t *testing.T) {
	late := strings.Replace(line(1, 0, 10, 5, 3), `"end":20`, `"end":5000`, 1)
	if !strings.Contains(late, "5000") {
		t.Fatal(late)
	}
	r := load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: line(0, 0, 10, 6, 3) + late}))
	if got := r.byTotal.rows; len(got) != 2 || got[0].Total != 22 || got[1].Total != 20 {
		t.Errorf("%+v, want 22 ms before 20 ms", got)
	}
}

// result returns the result of a request without a reply.
func result(at, late float64) (x outcome) {
	x.Outcome = "failed"
	x.Intended, x.Dispatched, x.Start, x.End, x.Lateness = &at, &at, &at, &at, &late
	return x
}

// TestSizeOfThePage: the page of a run with as many requests as the public conversation trace stays small.
func TestSizeOfThePage(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	var records strings.Builder
	const requests = maxPoints + 31
	for i := range requests {
		records.WriteString(line(i, float64(i)*10+random.Float64(), 10+random.Float64()*1000, 5+random.Float64(), 1+random.IntN(40)))
	}
	html := render(t, load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: records.String()})))
	if len(html) > 1<<20 {
		t.Errorf("%d bytes, want less than 1 MiB", len(html))
	}
	d := data(t, html)
	if len(d.Points.Row) != maxPoints || !strings.Contains(d.Sampled, "15,000 of 15,031") {
		t.Errorf("%d points; %q", len(d.Points.Row), d.Sampled)
	}
	if again := render(t, load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: records.String()}))); again != html {
		t.Error("the same folder gave another page")
	}
}

func TestWhy(t *testing.T) {
	// Bins of 10 ms: 25 wait at the end of the third; 6 at the end of the fourth, and 50 are answered in the fifth.
	b := &backlog{width: 10, waiting: []int64{1, 1, 25, 6, 1}, answered: []int64{0, 0, 0, 40, 90}, median: 20}
	u := usual{uncached: 500, reply: 100, gap: 10, backlog: b}
	for want, s := range map[string]slow{
		"sent late":           {Late: 100, Prefill: 20},
		"waited for a free":   {Wait: 100, Prefill: 20},
		"cold prompt":         {Prefill: 100, Uncached: 600, Prompt: 700},
		"queue: 25":           {Prefill: 100, Uncached: 5, Prompt: 700, At: 25, TTFT: 10},
		"cached; queue: 25":   {Prefill: 100, Uncached: 600, Prompt: 700, At: 12, Late: 14},
		"overtaken by 44":     {Prefill: 100, Uncached: 5, Prompt: 700, At: 30, TTFT: 10},
		"no reason":           {Prefill: 100, Uncached: 5, Prompt: 700, At: 5},
		"stalled for 600 ms":  {Prefill: 10, Decode: 1000, Gap: 600, Reply: 50},
		"slow tokens: 21":     {Prefill: 10, Decode: 1029, Gap: 30, Reply: 50},
		"slow reply, for no":  {TTFT: -1, Prefill: -1, Decode: -1, Whole: 100, Reply: 100},
		"long reply: 102 tok": {TTFT: -1, Prefill: -1, Decode: -1, Whole: 100, Reply: 102},
		"long reply: 101 tok": {Prefill: 10, Decode: 1000, Gap: 12, Reply: 101},
	} {
		if got := u.explain(&s, true); !strings.Contains(got, want) {
			t.Errorf("%+v: %q, want %q", s, got, want)
		}
	}
	if got := u.explain(&slow{Prefill: 10, Decode: 1000, Uncached: -1}, false); strings.Contains(got, "reply") {
		t.Errorf("time to first token is explained by the reply: %q", got)
	}
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{"0": 0, "0.00123": 0.001234, "1.23": 1.234, "12.3": 12.34, "999": 999.4, "1,000": 999.6, "12,345": 12345.4, "–": math.NaN(), "-1.5": -1.5} {
		if got := number(v); got != want {
			t.Errorf("%v is %q, want %q", v, got, want)
		}
	}
}

// TestWithoutStream: of a reply that was not a stream, tokens arrive at its end, its latency is known, and the page does not deny what was
// cached. Without usage, its number of tokens is not known.
func TestWithoutStream(t *testing.T) {
	whole := func(row int, end float64, more string) string {
		return fmt.Sprintf(`{"timestamp": 0, "session_id": "s", "input_length": 1000, "output_length": 99, "result": {"outcome":"served","row":%d,`+
			`"intended":0,"dispatched":1,"admitted":1,"start":1,"wire":1,"last":%g,"end":%g,%s}}`+"\n", row, end, end, more)
	}
	counted := `"whole":true,"usage":{"prompt_tokens":1000,"completion_tokens":40,"cached_tokens":512}`
	dir := saved(t, whole(0, 300, counted)+whole(1, 1200, counted)+
		whole(2, 1300, `"whole":true,"gaps_ms":[0]`)+whole(3, 1300, `"prompt_tokens_sent":900,"embedding":true`)+
		whole(4, 1300, `"first":1200,"gaps_ms":[40,60],"chunk_tokens":[1,2,3]`)+whole(5, 2500, `"whole":true`), 0)
	series := sheet(t, dir, SeriesFile)
	got := []string{series[0]["output_tokens"], series[1]["output_tokens"], series[2]["output_tokens"], series[2]["output_tokens_per_s"], series[0]["input_tokens"]}
	if !slices.Equal(got, []string{"40", "46", "", "", "5900"}) {
		t.Errorf("output tokens of three slices, of the third per second, and input tokens of the first: %q; want 40, 46, none, none and 5900", got)
	}
	if got := sheet(t, dir, SessionsFile)[0]["output_tokens"]; got != "86" {
		t.Errorf("%s output tokens in the session, want 86", got)
	}
	dir = saved(t, whole(0, 300, `"whole":true`), 0)
	if got := sheet(t, dir, SessionsFile)[0]["output_tokens"]; got != "" {
		t.Errorf("%s output tokens in a session of a reply without a count", got)
	}
	none := load(t, dir)
	if html := render(t, none); slices.ContainsFunc(none.line.series().Tokens, func(v *float64) bool { return v != nil }) || none.byTotal.rows[0].Reply != -1 || !strings.Contains(html, `<td class="n">–</td>`) {
		t.Error("the page has tokens of a reply without a count")
	}

	r := load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: whole(0, 300, counted) + whole(1, 1200, counted)}))
	html := render(t, r)
	for text, want := range map[string]bool{
		"reported no cached tokens": false, "No request was served": false, `id="cache-time"`: true, "cold prompt: 488": true, `<rect class="whole"`: true,
		"None: a reply that was not a stream has no first token": true,
	} {
		if strings.Contains(html, text) != want {
			t.Errorf("the page has %q: %v, want %v", text, !want, want)
		}
	}
	if got := r.byTotal.rows; len(got) != 2 || got[0].Total != 1200 || got[0].Whole != 1199 || !r.gaps.empty() {
		t.Errorf("slowest: %+v; gaps: %v", got, !r.gaps.empty())
	}
	html = render(t, load(t, folder(t, map[string]string{summaryFile: smallSummary, lines.File: strings.Replace(line(0, 0, 1, 1, 2), `"served"`, `"failed"`, 1)})))
	if strings.Contains(html, "reported no cached tokens") {
		t.Error("the page says that the engine reported no cached tokens, but no request was served")
	}
}

// TestWireUnknown: if the time of a request's last byte is not known, its phases go from its start, and its time to first token does not become 0.
func TestWireUnknown(t *testing.T) {
	unknown := strings.Replace(line(0, 1000, 700, 5, 3), `"wire":1000,`, `"wire_unknown":true,`, 1)
	r := load(t, saved(t, unknown, 0))
	if at := r.byTTFT.rows; len(at) != 1 || at[0].Prefill != 700 || !r.ttftWire.empty() {
		t.Errorf("%+v; from the wire: %v", at, !r.ttftWire.empty())
	}
	if html := render(t, r); strings.Contains(html, "sent late") {
		t.Error("the page says that a request with a slow first token was sent late")
	}
}

// TestRequestLatency: like the report's, it ends with the last token, not with what follows that.
func TestRequestLatency(t *testing.T) {
	for name, times := range map[string]string{
		"streamed": `"first": 110, "last": 120, "end": 500`,
		"whole":    `"end": 120`,
	} {
		dir := t.TempDir()
		line := `{"timestamp": 0, "result": {"outcome": "served", "row": 0, "intended": 90, "start": 100, ` + times + `}}` + "\n"
		if err := os.WriteFile(filepath.Join(dir, lines.Partial), []byte(line), 0o600); err != nil {
			t.Fatal(err)
		}
		r, err := Load(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := [2]float64{math.Round(r.latency.millis(0.5)), math.Round(r.latencyIntended.millis(0.5))}; got != [2]float64{20, 30} {
			t.Errorf("%s: %v, want 20 and 30", name, got)
		}
	}
}
