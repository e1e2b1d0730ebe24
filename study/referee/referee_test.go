// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package referee_test

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/study/referee"
)

var nan = math.NaN()

func TestPercentile(t *testing.T) {
	ten := []float64{10, 1, 9, 2, 8, 3, 7, 4, 6, 5}
	for _, c := range []struct {
		values []float64
		q      float64
		want   float64
		why    string
	}{
		{ten, 0.5, 5, "half of ten values are at most the fifth"},
		{ten, 0.99, 10, "one in ten is above the ninth"},
		{ten, 0.01, 1, "the least"},
		{ten, 0, 1, "a share of 0 is the first value"},
		{ten, 1, 10, "a share of 1 is the last value"},
		{[]float64{7}, 0.5, 7, "a single one"},
		{nil, 0.5, nan, "no values"},
	} {
		if got := referee.Percentile(c.values, c.q); !cmp.Equal(got, c.want, cmpopts.EquateNaNs()) {
			t.Errorf("%s: %v, want %v", c.why, got, c.want)
		}
	}
	if ten[0] != 10 {
		t.Error("the caller's values were sorted")
	}
}

func TestAlign(t *testing.T) {
	for _, c := range []struct {
		ideal, arrived, want []float64
		why                  string
	}{
		{referee.Even(3, 1000), []float64{50, 51, 52}, []float64{0, 0, 0}, "a delay of all does not count"},
		{referee.Even(3, 1000), []float64{50, 51.5, 52}, []float64{0, 0.5, 0}, "one late"},
		{referee.Even(3, 1000), []float64{50.7, 51, 52}, []float64{0.7, 0, 0}, "the first may be the late one: it is not the zero"},
		{referee.Even(3, 1000), []float64{50, nan, 53}, []float64{0, nan, 1}, "one never came"},
		{[]float64{0, 0, 10}, []float64{5, 6, 15}, []float64{0, 1, 0}, "a burst"},
		{referee.Even(2, 1000), []float64{nan, nan}, nil, "none came"},
	} {
		if diff := cmp.Diff(c.want, referee.Align(c.ideal, c.arrived), cmpopts.EquateNaNs(), cmpopts.EquateApprox(0, 1e-9)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.why, diff)
		}
	}
}

// arrival is a request that arrives at a time, in ms, with this many tokens and this header.
type arrival struct {
	at     float64
	tokens int
	header string // Name: value
}

// record returns what an engine would have written about arrivals, in the order of their ends. The first token of each reply comes 10 ms
// after the arrival, the others 5 ms apart.
func record(list []arrival) string {
	var lines []string
	for i, a := range list {
		name, value, _ := strings.Cut(a.header, ": ")
		ns := int64(a.at*1e6) + int64(time.Second)
		var writes [][2]int64
		for k := range a.tokens {
			writes = append(writes, [2]int64{ns + int64(10*time.Millisecond) + int64(k)*int64(5*time.Millisecond), 1})
		}
		text, _ := json.Marshal(map[string]any{
			"seq": i + 1, "header": map[string][]string{name: {value}}, "request": map[string]int{"max_tokens": a.tokens},
			"headers_ns": ns - 1000, "received_ns": ns, "body_read_ns": ns + 40_000, "ended_ns": ns, "output_tokens": a.tokens,
			"time": time.Unix(100, ns-1000).UTC(), "writes": writes,
		})
		lines = append(lines, string(text))
	}
	slices.Reverse(lines)
	return strings.Join(lines, "\n") + "\n"
}

func read(t *testing.T, list []arrival) []referee.Request {
	t.Helper()
	all, err := referee.ReadRecord(strings.NewReader(record(list)))
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func rate(t *testing.T, text string) *referee.Schedule {
	t.Helper()
	a, err := referee.ParseAsked(text)
	if err != nil {
		t.Fatal(err)
	}
	return a.Rate
}

// trace returns a schedule of rows {ms, tokens}.
func trace(t *testing.T, rows ...[2]int64) *referee.Schedule {
	t.Helper()
	list := make([]mooncake.Row, len(rows))
	for i, r := range rows {
		list[i] = mooncake.Row{Timestamp: mooncake.Some(float64(r[0])), InputLength: mooncake.Some(int64(5)), OutputLength: mooncake.Some(r[1])}
	}
	return scheduled(t, 1, list...)
}

// scheduled returns the schedule of rows.
func scheduled(t *testing.T, speedup float64, rows ...mooncake.Row) *referee.Schedule {
	t.Helper()
	s, err := referee.ReadSchedule("trace", speedup, func() (*mooncake.Row, error) {
		if len(rows) == 0 {
			return nil, io.EOF
		}
		r := rows[0]
		rows = rows[1:]
		return &r, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestJudge(t *testing.T) {
	zero := 0
	for _, c := range []struct {
		why      string
		schedule *referee.Schedule
		arrivals []arrival
		skip     int
		by       string
		late     []float64 // p50, max
		missing  int
		extra    int
		moved    *int
	}{
		{
			why: "numbered from 0, in any order", schedule: rate(t, "rate=100,count=3"), by: "X-Vegeta-Seq", late: []float64{0, 2}, moved: &zero,
			arrivals: []arrival{{22, 1, "X-Vegeta-Seq: 2"}, {0, 1, "X-Vegeta-Seq: 0"}, {10, 1, "X-Vegeta-Seq: 1"}},
		},
		{
			why: "numbered from 1", schedule: rate(t, "rate=100,count=3"), by: "X-Request-Id", late: []float64{0, 2}, moved: &zero,
			arrivals: []arrival{{5, 1, "X-Request-Id: run-1"}, {15, 1, "X-Request-Id: run-2"}, {27, 1, "X-Request-Id: run-3"}},
		},
		{
			why: "two overtook the first", schedule: rate(t, "rate=100,count=4"), by: "X-Request-Id", late: []float64{0, 25}, moved: new(int(1)),
			arrivals: []arrival{{25, 1, "X-Request-Id: k6-0"}, {10, 1, "X-Request-Id: k6-1"}, {20, 1, "X-Request-Id: k6-2"}, {30, 1, "X-Request-Id: k6-3"}},
		},
		{
			why: "one never came, by its number", schedule: rate(t, "rate=100"), by: "X-Request-Id", late: []float64{0, 0}, missing: 1, moved: &zero,
			arrivals: []arrival{{0, 1, "X-Request-Id: 0"}, {10, 1, "X-Request-Id: 1"}, {30, 1, "X-Request-Id: 3"}},
		},
		{
			why: "one more than was requested, by its number", schedule: rate(t, "rate=100,count=10"), by: "X-Request-Id", late: []float64{0, 0}, extra: 1, moved: &zero,
			arrivals: []arrival{
				{0, 1, "X-Request-Id: 0"},
				{10, 1, "X-Request-Id: 1"},
				{20, 1, "X-Request-Id: 2"},
				{30, 1, "X-Request-Id: 3"},
				{40, 1, "X-Request-Id: 4"},
				{50, 1, "X-Request-Id: 5"},
				{60, 1, "X-Request-Id: 6"},
				{70, 1, "X-Request-Id: 7"},
				{80, 1, "X-Request-Id: 8"},
				{90, 1, "X-Request-Id: 9"},
				{100, 1, "X-Request-Id: 10"},
			},
		},
		{
			why: "a UUID is not a number", schedule: rate(t, "rate=100"), by: "order", late: []float64{0, 1},
			arrivals: []arrival{{0, 1, "X-Request-Id: 6b1e-9a"}, {11, 1, "X-Request-Id: 6b1e-9b3"}, {20, 1, "X-Request-Id: 7c-0d1"}},
		},
		{
			why: "the lengths tell rows of one instant apart", schedule: trace(t, [2]int64{0, 7}, [2]int64{0, 8}, [2]int64{100, 9}), by: "length", late: []float64{0.5, 1}, moved: &zero,
			arrivals: []arrival{{50, 8, ""}, {51, 7, ""}, {150.5, 9, ""}},
		},
		{
			why: "a warm-up before all others is the extra request", schedule: rate(t, "rate=100,count=4"), by: "order", late: []float64{0, 1}, extra: 1,
			arrivals: []arrival{{0, 1, ""}, {500, 1, ""}, {510, 1, ""}, {521, 1, ""}, {530, 1, ""}},
		},
		{
			why: "a warm-up that repeats a row", schedule: trace(t, [2]int64{0, 7}, [2]int64{100, 8}, [2]int64{200, 9}), by: "length", late: []float64{0, 3}, extra: 1, moved: &zero,
			arrivals: []arrival{{0, 7, ""}, {500, 7, ""}, {600, 8, ""}, {703, 9, ""}},
		},
		{
			why: "without a number, one that is dropped leaves a gap", schedule: rate(t, "rate=100,count=5"), by: "order", late: []float64{0, 0}, missing: 1,
			arrivals: []arrival{{0, 1, ""}, {10, 1, ""}, {30, 1, ""}, {40, 1, ""}},
		},
		{
			why: "warm-ups that the caller leaves out", schedule: rate(t, "rate=100"), skip: 2, by: "order", late: []float64{0, 0},
			arrivals: []arrival{{10, 1, ""}, {0, 1, ""}, {530, 1, ""}, {540, 1, ""}},
		},
	} {
		t.Run(c.why, func(t *testing.T) {
			j, err := referee.Judge(c.schedule, read(t, c.arrivals), c.skip)
			if err != nil {
				t.Fatal(err)
			}
			type facts struct {
				By             string
				Late           []float64
				Missing, Extra int
				Moved          *int
			}
			got := facts{j.PairedBy, []float64{j.Lateness.P50, j.Lateness.Max}, j.Missing, j.Extra, j.Reordered}
			want := facts{c.by, c.late, c.missing, c.extra, c.moved}
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			// The engine of these records writes the only token of a reply after 10 ms.
			if waits := j.FromSchedule; c.by != "length" && math.Abs(waits.Max-j.Lateness.Max-10) > 1e-6 {
				t.Errorf("from the schedule to the last token at most %v ms, with a lateness of at most %v", waits.Max, j.Lateness.Max)
			}
		})
	}
}

// TestJudgeTurns: a turn that waited for its reply is late only by what it took beyond that. The reply of n tokens ends 5+5n ms after the
// arrival.
func TestJudgeTurns(t *testing.T) {
	row := func(at float64, tokens int64, session string) mooncake.Row {
		return mooncake.Row{Timestamp: mooncake.Some(at), OutputLength: mooncake.Some(tokens), SessionID: session}
	}
	ids := func(at ...float64) (list []arrival) {
		for i, a := range at {
			list = append(list, arrival{a, 19, fmt.Sprint("X-Request-Id: run-", i)})
		}
		return list
	}
	talks := []mooncake.Row{row(0, 19, "a"), row(20, 19, "a"), row(30, 19, "b"), row(160, 19, "b"), row(170, 19, "")}
	graph := []mooncake.Row{
		{Timestamp: mooncake.Some(0.0), RequestID: "plan", WaitFor: []string{}},
		{Timestamp: mooncake.Some(400.0), RequestID: "look", WaitFor: []string{"plan"}, Delay: mooncake.Some(40.0), ToolWait: mooncake.Some(20.0)},
		{Timestamp: mooncake.Some(900.0), WaitFor: []string{"plan", "look", "unknown"}},
	}
	unnamed := func(list []arrival) []arrival {
		for i := range list {
			list[i].header = "A: b"
		}
		return list
	}
	many := make([]mooncake.Row, 12) // turns of one session, one in ten of which may be early
	for i := range many {
		many[i] = row(float64(i), 19, "a")
	}
	for _, c := range []struct {
		why      string
		schedule *referee.Schedule
		arrivals []arrival
		gone     bool // the generator left the first reply
		turns    *referee.Turns
		late     []float64 // p50, max; nil: unknown
		rate     float64   // asked for
		moved    int
	}{
		{
			why: "it waits, 3 ms too long once", schedule: scheduled(t, 1, talks...), arrivals: ids(0, 103, 30, 160, 170),
			turns: &referee.Turns{Known: 2, Waits: true, AtReply: 1}, late: []float64{0, 3}, rate: 1e3 * 4 / 170,
		},
		{
			why: "the times are divided, the replies are not", schedule: scheduled(t, 10, talks...), arrivals: ids(0, 101, 3, 105, 17),
			turns: &referee.Turns{Known: 2, Waits: true, AtReply: 2}, late: []float64{0, 2}, rate: 1e3 * 4 / 103,
		},
		{
			why: "it does not wait", schedule: scheduled(t, 1, talks...), arrivals: ids(0, 24, 30, 160, 170),
			turns: &referee.Turns{Known: 2, Unwaited: 1}, late: []float64{0, 4}, rate: 1e3 * 4 / 170,
		},
		{
			why: "it left the reply", schedule: scheduled(t, 1, talks...), arrivals: ids(0, 60, 30, 160, 170), gone: true,
			turns: &referee.Turns{Known: 2, Waits: true, AtReply: 1}, late: []float64{0, 0}, rate: 1e3 * 4 / 170,
		},
		{
			why: "one of eleven turns is early", schedule: scheduled(t, 1, many...),
			arrivals: ids(0, 100, 200, 300, 400, 500, 600, 700, 800, 900, 1000, 1050),
			turns:    &referee.Turns{Known: 11, Unwaited: 1, Waits: true, AtReply: 10}, late: []float64{0, 1039}, rate: 11,
		},
		{
			why: "a graph: after two replies, and a wait", schedule: scheduled(t, 2, graph...), arrivals: ids(50, 182, 282),
			turns: &referee.Turns{Known: 2, Waits: true, AtReply: 2}, late: []float64{0, 2}, rate: 1e3 * 2 / 232,
		},
		{
			why: "a graph, sent at the times of its rows", schedule: scheduled(t, 2, graph...), arrivals: ids(50, 251, 500),
			turns: &referee.Turns{Known: 2, Unwaited: 2}, late: []float64{0, 1}, rate: 1e3 * 2 / 450,
		},
		{why: "which turn it is is unknown", schedule: scheduled(t, 1, talks...), arrivals: unnamed(ids(0, 103, 30, 160, 170))},
		{
			why: "which turn it is is unknown, but no reply matters", schedule: scheduled(t, 1, talks[0], row(200, 19, "a")), arrivals: unnamed(ids(0, 203)),
			turns: &referee.Turns{Known: 1, Waits: true}, late: []float64{0, 3}, rate: 5, moved: -1,
		},
		{why: "no row waits", schedule: scheduled(t, 1, talks[0], talks[2]), arrivals: ids(0, 30), late: []float64{0, 0}, rate: 1e3 / 30.},
	} {
		t.Run(c.why, func(t *testing.T) {
			all := read(t, c.arrivals)
			if c.gone {
				all[0].Outcome = "client_gone"
			}
			j, err := referee.Judge(c.schedule, all, 0)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.turns, j.Turns); diff != "" {
				t.Errorf("turns (-want +got):\n%s", diff)
			}
			if c.late == nil {
				if j.Lateness != nil || j.RateAsked != nil || j.Reordered != nil || j.FromSchedule != nil || len(j.Notes) != 1 || !strings.Contains(j.Notes[0], "no request is judged late") {
					t.Errorf("%+v", j)
				}
				return
			}
			moved := -1
			if j.Reordered != nil {
				moved = *j.Reordered
			}
			want, got := append(c.late, c.rate, float64(c.moved)), []float64{j.Lateness.P50, j.Lateness.Max, *j.RateAsked, float64(moved)}
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
				t.Errorf("late at p50, at most, rate, moved (-want +got):\n%s", diff)
			}
			last := math.Inf(-1)
			j.Points(func(due, _ float64) {
				if due < last {
					t.Errorf("a request due at %v after one due at %v", due, last)
				}
				last = due
			})
		})
	}
}

// TestJudgeTurnsOwnAccount: by its own account, too, a turn is due when the reply has ended.
func TestJudgeTurnsOwnAccount(t *testing.T) {
	turn := func(at float64) mooncake.Row {
		return mooncake.Row{Timestamp: mooncake.Some(at), OutputLength: mooncake.Some(int64(19)), SessionID: "a"}
	}
	all := read(t, []arrival{{0, 19, "X-Request-Id: r-0"}, {107, 19, "X-Request-Id: r-1"}, {207, 19, "X-Request-Id: r-2"}})
	j, err := referee.Judge(scheduled(t, 1, turn(0), turn(20), turn(40)), all, 0)
	if err != nil {
		t.Fatal(err)
	}
	e, err := referee.ReadExport(strings.NewReader(`{"row":0,"ttft_ms":10,"start_ms":0,"latency_ms":101}
{"row":1,"ttft_ms":10,"start_ms":103,"latency_ms":104}
{"row":2,"ttft_ms":10,"start_ms":208,"latency_ms":100}
`))
	if err != nil {
		t.Fatal(err)
	}
	j.Against(e, all, 0)
	if own := j.Client.Lateness; own == nil || own.P50 != 1 || own.Max != 2 || j.Lateness.Max != 7 {
		t.Errorf("by its own account %+v, at the engine %+v", own, j.Lateness)
	}
}

// TestFromSchedule: a generator that waits for a stopped server omits two requests, which would have waited, too.
func TestFromSchedule(t *testing.T) {
	j, err := referee.Judge(rate(t, "rate=100,count=5"), read(t, []arrival{{30, 1, "X-Request-Id: 0"}, {30, 1, "X-Request-Id: 3"}}), 0)
	if err != nil {
		t.Fatal(err)
	}
	// 40, 30, 20, 10 and, after the last one that came, 10.
	if diff := cmp.Diff(referee.Percentiles{P50: 20, P90: 40, P99: 40, P999: 40, Max: 40}, *j.FromSchedule, cmpopts.EquateApprox(0, 1e-6)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestJudgeRates(t *testing.T) {
	var list []arrival
	for i := range 101 {
		list = append(list, arrival{at: 1000 + 12.5*float64(i), tokens: 1})
	}
	j, err := referee.Judge(rate(t, "rate=100"), read(t, list), 0)
	if err != nil {
		t.Fatal(err)
	}
	if *j.RateAsked != 100 || math.Abs(*j.Rate-80) > 1e-6 || math.Abs(j.Lateness.Max-250) > 1e-6 || j.Kernel != 101 {
		t.Errorf("asked %v, came at %v, at most %v ms late, %d stamps", *j.RateAsked, *j.Rate, j.Lateness.Max, j.Kernel)
	}
	if want := time.Unix(102, 0); !j.Zero.Equal(want) {
		t.Errorf("zero at %v, want %v", j.Zero, want.UTC())
	}
	even, err := referee.Judge(rate(t, "rate=80,arrival=poisson"), read(t, list), 0)
	if err != nil {
		t.Fatal(err)
	}
	if even.Lateness != nil || even.Gaps.Variation > 1e-6 || even.Gaps.KS <= even.Gaps.Limit {
		t.Errorf("an even rate is accepted as a random one: %+v", even.Gaps)
	}
	at := 0.0
	for i := range list { // the quantiles of an exponential distribution, in arbitrary order
		at += -12.5 * math.Log(1-(float64(i*37%101)+0.5)/101)
		list[i].at = at
	}
	random, err := referee.Judge(rate(t, "rate=80,arrival=poisson"), read(t, list), 0)
	if err != nil {
		t.Fatal(err)
	}
	if g := random.Gaps; g.KS > g.Limit || math.Abs(g.Variation-1) > 0.1 {
		t.Errorf("a random rate is not recognised as random: %+v", g)
	}
}

// A warm-up that was not declared sets the zero; the judgement says so.
func TestJudgeWarmUp(t *testing.T) {
	list := []arrival{{at: 0, tokens: 1}}
	for i := range 50 {
		list = append(list, arrival{at: 900 + 10*float64(i), tokens: 1})
	}
	j, err := referee.Judge(rate(t, "rate=100"), read(t, list), 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(j.Notes) != 1 || !strings.Contains(j.Notes[0], "--skip 1") {
		t.Errorf("notes %q", j.Notes)
	}
}

// planted returns exports of all forms, for requests i = 0, 1, 2 that arrived at 100·i ms. Each says that its first token came 13 ms after the
// arrival, while the engine says 10, and the last one 10 ms after that, like the engine.
func planted() map[string]string {
	lines := func(one func(i int) string) (text string) {
		for i := range 3 {
			text += one(i) + "\n"
		}
		return text
	}
	sprintf := func(format string, fill func(i int) []any) string {
		return lines(func(i int) string { return fmt.Sprintf(format, fill(i)...) })
	}
	unix := func(i int) float64 { return 101 + float64(i)/10 } // s
	number := func(i int) []any { return []any{i} }
	var gllm, perf []string
	for i := range 3 {
		gllm = append(gllm, fmt.Sprintf(`{"request_start_time":%v,"request_latency":0.023,"time_to_first_token_ms":13,"inter_token_latency_ms":5,"output_tokens":3}`, unix(i)))
		perf = append(perf, fmt.Sprintf(`{"start_time":%v,"end_time":9,"info":{"response_metrics":{"output_tokens":3,"output_token_times":[%v,%v,%v]}},"error":null}`,
			7+float64(i)/10, 7.013+float64(i)/10, 7.018+float64(i)/10, 7.023+float64(i)/10))
	}
	return map[string]string{
		"moonloop": sprintf(`{"input_length":4,"result":{"outcome":"served","row":%d,"start":1.5,"wire":2,"first":15,"ttft_ms":13,"latency_ms":23,"itl_ms":5,"gaps_ms":[5,5]}}`, number) +
			`{"result":{"outcome":"skipped","row":9}}`,
		"AIPerf": sprintf(`{"metadata":{"x_request_id":"run-%d","request_start_ns":%d},"metrics":{"time_to_first_token":{"value":13,"unit":"ms"},"inter_token_latency":{"value":5},"request_latency":{"value":23},"inter_chunk_latency":{"value":[5,5]},"output_sequence_length":{"value":3}},"error":null}`,
			func(i int) []any { return []any{i, int64(unix(i) * 1e9)} }),
		"GuideLLM":       `{"benchmarks":[{"requests":{"successful":[` + strings.Join(gllm, ",") + `],"errored":[],"incomplete":[]}}]}`,
		"vllm bench":     `{"input_lens":[4,4,4],"output_lens":[3,3,3],"ttfts":[0.013,0.013,0.013],"itls":[[0.005,0.005],[0.005,0.005],[0.005,0.005]],"start_times":[7,7.1,7.2],"errors":["","",""]}`,
		"inference-perf": "[" + strings.Join(perf, ",") + "]",
		"k6": `{"type":"Metric","data":{"type":"trend"},"metric":"http_req_duration"}` + "\n" + sprintf(
			`{"metric":"http_req_duration","type":"Point","data":{"time":%q,"value":23,"tags":{"expected_response":"true"}}}
{"metric":"http_req_waiting","type":"Point","data":{"time":"2026-01-01T00:00:00Z","value":13,"tags":{}}}`,
			func(i int) []any {
				return []any{time.UnixMilli(int64(unix(i)*1e3) + 23).UTC().Format(time.RFC3339Nano)}
			}),
		"k6 ": "metric_name,timestamp,metric_value,check\n" + sprintf("http_req_duration,%[1]d,23,\nhttp_req_waiting,%[1]d,13,\nhttp_reqs,%[1]d,1,", func(i int) []any { return []any{int64(unix(i)*1e9) + 23e6} }),
		"oha": "request-start,DNS,DNS+dialup,Response-delay,request-duration,bytes,status\n" + sprintf("%v,0.001,0.002,0.013,0.023,99,200",
			func(i int) []any { return []any{unix(i) - 101} }),
		"lines of JSON": sprintf(`{"row":%d,"ttft_ms":13,"itl_ms":5,"gaps_ms":[5,5],"latency_ms":23}`, number),
	}
}

func TestPlanted(t *testing.T) {
	var list []arrival
	for i := range 3 {
		list = append(list, arrival{100 * float64(i), 3, "X-Request-Id: run-" + strconv.Itoa(i)})
	}
	for tool, text := range planted() {
		t.Run(tool, func(t *testing.T) {
			all := read(t, list)
			j, err := referee.Judge(rate(t, "rate=10,count=3"), all, 0)
			if err != nil {
				t.Fatal(err)
			}
			e, err := referee.ReadExport(strings.NewReader(text))
			if err != nil {
				t.Fatal(err)
			}
			j.Against(e, all, 0)
			c := j.Client
			if c.Tool != strings.TrimSpace(tool) || c.Claims != 3 || c.Unknown+c.Untold+c.Failed+c.OtherGaps != 0 {
				t.Errorf("%+v", c)
			}
			got := map[string]float64{}
			for _, e := range c.Errors {
				if math.Abs(e.P1-e.Max) > 1e-6 {
					t.Errorf("%s: from %v to %v", e.Name, e.P1, e.Max)
				}
				got[e.Name] = e.P50
			}
			want := map[string]float64{"ttft": 3, "itl": 0, "gap": 0, "latency": 3}
			switch c.Tool {
			case "moonloop":
				want["ttft from the wire"] = 3
			case "GuideLLM":
				delete(want, "gap")
			case "k6", "oha":
				delete(want, "gap")
				delete(want, "itl")
			}
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(0, 1e-3)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			if e := c.Before; e != nil && math.Abs(e.Max) > 0.01 {
				t.Errorf("%v ms from its start to the engine", e.Max)
			}
		})
	}
}

// vegeta knows one time of a request, that of its end.
func TestPlantedVegeta(t *testing.T) {
	for name, text := range map[string]string{
		"csv":  "101100000000,200,23000000,1,2,,,bench,1,POST\n101000000000,200,23000000,1,2,,,bench,0,POST\n101200000000,0,9,1,2,refused,,bench,2,POST\n",
		"json": `{"attack":"b","seq":1,"code":200,"timestamp":"1970-01-01T00:01:41.1Z","latency":23000000,"error":""}{"attack":"b","seq":0,"code":200,"timestamp":"1970-01-01T00:01:41Z","latency":23000000}{"attack":"b","seq":2,"code":0,"timestamp":"1970-01-01T00:01:41.2Z","latency":9,"error":"refused"}`,
	} {
		all := read(t, []arrival{{0.5, 3, "X-Vegeta-Seq: 0"}, {100.5, 3, "X-Vegeta-Seq: 1"}, {201, 3, "X-Vegeta-Seq: 2"}})
		j, err := referee.Judge(rate(t, "rate=10"), all, 0)
		if err != nil {
			t.Fatal(err)
		}
		e, err := referee.ReadExport(strings.NewReader(text))
		if err != nil {
			t.Fatal(name, err)
		}
		j.Against(e, all, 0)
		c := j.Client
		if c.PairedBy != "X-Vegeta-Seq" || c.Failed != 1 || len(c.Errors) != 1 || c.Errors[0].N != 2 || math.Abs(c.Errors[0].P50-3) > 1e-3 {
			t.Errorf("%s: %+v", name, c)
		}
		if math.Abs(c.Before.Max-1) > 1e-3 || math.Abs(j.Lateness.Max-0.5) > 1e-3 || c.Lateness.Max > 1e-3 {
			t.Errorf("%s: before %v, late %v, by its own account %v", name, c.Before, j.Lateness, c.Lateness)
		}
	}
}

func TestWrongExports(t *testing.T) {
	for text, want := range map[string]string{
		"":                  "it is empty",
		"{}":                "its form is not known",
		"[]":                "empty array",
		"[1]":               "its form is not known",
		`{"ttft_ms":1`:      "is not JSON",
		`{"ttft_ms":"x"}`:   "value 1, of lines of JSON: ttft_ms is a string; want a number",
		`{"benchmarks":[]}`: "reports no request in it",
		"<html>":            "its form is not known",
		"metric_name,timestamp,metric_value\nhttp_reqs":                "may be cut off",
		"metric_name,timestamp,metric_value\nhttp_reqs,x,y":            "does not have k6's time",
		"request-start,DNS,DNS+dialup\n0,1,2":                          "of oha, has 3 columns",
		"request-start,DNS,DNS+dialup\n0,1,2,3,4,5,OK":                 "does not have oha's times",
		`{"input_lens":[1],"ttfts":[1,2],"output_lens":[1],"itls":[]}`: "other numbers of requests",
		`{"metric":"a","type":"Other","data":{}}`:                      "a line of type",
		"\"":                            "neither JSON nor CSV",
		"\x00\x00":                      "it is a binary file",
		strings.Repeat("x", 65<<20):     "a line has more than 67108864 bytes",
		"1,200,1,2,3,,,bench,-1,POST\n": "not the number of a request",
	} {
		if _, err := referee.ReadExport(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.99q: %v, want %q", text, err, want)
		}
	}
}

func TestWrongRecords(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "the engine saw no request",
		"{}":                            "line 1 has no headers_ns",
		"\n[1]":                         "line 2 is not a line of an engine's record",
		`{"headers_ns":"x"}`:            "line 1",
		`{"headers_ns":1,"writes":[1]}`: "array of [nanoseconds, tokens]",
	} {
		if _, err := referee.ReadRecord(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestParseAsked(t *testing.T) {
	for _, text := range []string{"rate=", "rate=0", "rate=x", "rate=NaN", "rate=1e9", "rate=1,count=0", "rate=1,count=x", "rate=1,arrival=even", "rate=1,x=2", "rate=1,"} {
		if a, err := referee.ParseAsked(text); err == nil {
			t.Errorf("%q is read as %+v", text, a.Rate)
		}
	}
	if a, err := referee.ParseAsked("some.jsonl"); err != nil || a.Trace != "some.jsonl" {
		t.Errorf("%+v: %v", a, err)
	}
}

// FuzzReadExport: any file is read or refused.
func FuzzReadExport(f *testing.F) {
	for _, text := range planted() {
		f.Add(text)
	}
	f.Add("101100000000,200,23000000,1,2,,,bench,1,POST\n")
	f.Fuzz(func(t *testing.T, text string) {
		e, err := referee.ReadExport(strings.NewReader(text))
		if (err == nil) != (e != nil) {
			t.Fatal(e, err)
		}
		if err != nil {
			return
		}
		all := read(t, []arrival{{0, 3, "X-Request-Id: run-0"}, {100, 3, "X-Request-Id: run-1"}})
		j, err := referee.Judge(rate(t, "rate=10"), all, 0)
		if err != nil {
			t.Fatal(err)
		}
		j.Against(e, all, 0)
	})
}
