// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/moonloop/moonloop/mooncake"
)

// clientFolder returns a folder of clients, given the table and the lengths of each client by its number.
func clientFolder(clients map[int][2]string) fstest.MapFS {
	folder := fstest.MapFS{"README.md": {Data: []byte("of no client")}}
	for id, files := range clients {
		folder[fmt.Sprintf("chunk-%d-trace.csv", id)] = &fstest.MapFile{Data: []byte(files[0])}
		folder[fmt.Sprintf("chunk-%d-dataset.json", id)] = &fstest.MapFile{Data: []byte(files[1])}
	}
	return folder
}

// fromClients returns all rows.
func fromClients(t *testing.T, c Clients, folder fstest.MapFS) (rows []*mooncake.Row, drawn Drawn) {
	t.Helper()
	drawn, err := FromClients(c, folder, func(r *mooncake.Row) error {
		rows = append(rows, r)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows, drawn
}

// steady returns the table of a client with one window of 100,000 s.
func steady(rate float64, distribution string, shape float64) string {
	return fmt.Sprintf("0,%g,1,%s,%g,1\n100000,0,0,,0,0\n", rate, distribution, shape)
}

const someLengths = `{"0": {"input_tokens": "{10: 0.25, 1000: 0.75}", "output_tokens": "{3: 1.0}"}}`

// TestClientArrivals: the number of requests follows from the rates, and gaps have the distribution's coefficient of variation, for
// bursts, for a Poisson process and for regular arrivals.
func TestClientArrivals(t *testing.T) {
	weibullCV := func(k float64) float64 {
		mean := math.Gamma(1 + 1/k)
		return math.Sqrt(math.Gamma(1+2/k)/(mean*mean) - 1)
	}
	for _, c := range []struct {
		distribution string
		shape, cv    float64
	}{{"Gamma", 0.1, math.Sqrt(10)}, {"Gamma", 1, 1}, {"Gamma", 400, 0.05}, {"Weibull", 0.5, weibullCV(0.5)}, {"Weibull", 1, 1}, {"Weibull", 5, weibullCV(5)}} {
		rows, drawn := fromClients(t, Clients{Seed: 1}, clientFolder(map[int][2]string{0: {steady(0.5, c.distribution, c.shape), someLengths}}))
		n := float64(len(rows))
		if drawn.Expected != 50_000 || math.Abs(n-drawn.Expected) > 5*c.cv*math.Sqrt(drawn.Expected)+2 {
			t.Errorf("%s %g: %g rows, want about %g", c.distribution, c.shape, n, drawn.Expected)
		}
		var sum, squares float64
		for i, r := range rows[1:] {
			gap := r.Timestamp.V - rows[i].Timestamp.V
			if gap < 0 {
				t.Fatalf("%s %g: row %d is earlier than the row before it", c.distribution, c.shape, i+1)
			}
			sum, squares = sum+gap, squares+gap*gap
		}
		mean := sum / (n - 1)
		if cv := math.Sqrt(squares/(n-1)-mean*mean) / mean; math.Abs(cv/c.cv-1) > 0.05 {
			t.Errorf("%s %g: gaps have a CV of %.3f, want %.3f", c.distribution, c.shape, cv, c.cv)
		}
		long := 0
		for _, r := range rows {
			if r.InputLength.V == 1000 {
				long++
			}
		}
		if share := float64(long) / n; math.Abs(share-0.75) > 0.01 || rows[0].OutputLength.V != 3 || rows[0].Class != "client-0" {
			t.Errorf("%s %g: %.3f of the prompts are long; the first row is %+v", c.distribution, c.shape, share, rows[0])
		}
	}
}

// TestRareClients: clients with less than one request a window have the right number of requests.
func TestRareClients(t *testing.T) {
	folder := map[int][2]string{}
	for i := range 400 {
		folder[i] = [2]string{"0,0.0005,2,Gamma,0.25,1\n600,0.0005,2,Gamma,0.25,1\n1200,0,0,,0,0\n", someLengths}
	}
	total := 0
	for seed := range uint64(20) {
		rows, _ := fromClients(t, Clients{Seed: seed}, clientFolder(folder))
		total += len(rows)
	}
	if want := 400 * 20 * 0.6; math.Abs(float64(total)/want-1) > 0.05 {
		t.Errorf("%d requests, want about %g", total, want)
	}
}

// TestClientWindows: only a part of the time can be drawn, the rate can be set, and lengths change with time; windows without a
// distribution have no requests.
func TestClientWindows(t *testing.T) {
	table := "0,1,1,Gamma,10000,1\n600,0,0,,0,0\n1200,3,1,Gamma,10000,1\n1800,1,1,Gamma,10000,1\n"
	lengths := `{
		"0": {"input_tokens": "{1: 1}", "output_tokens": "{1: 1}"},
		"1200": {"input_tokens": "{2: 0.5}", "output_tokens": "{2: 0.5}", "reason_ratio": "{0.5: 1.0}"},
		"1800": {"input_tokens": "{}", "output_tokens": "{}"}
	}`
	count := func(rows []*mooncake.Row) (by map[int64]int) {
		by = map[int64]int{}
		for _, r := range rows {
			by[r.InputLength.V]++
		}
		return by
	}
	near := func(what string, n, want int) {
		if n < want-3 || n > want+3 {
			t.Errorf("%s: %d rows, want about %d", what, n, want)
		}
	}
	folder := clientFolder(map[int][2]string{3: {table, lengths}, 12: {"0,1,1,Gamma,10000,1\n600,0,0,,0,0\n1200,1,1,Gamma,10000,1\n1800,1,1,Gamma,10000,1\n", someLengths}})
	rows, _ := fromClients(t, Clients{Seed: 4}, folder)
	by := count(rows)
	near("the first window", by[1], 600)
	near("the others, with lengths of 1200 where there are no later ones", by[2], 1800+600)
	near("the other client", by[10]+by[1000], 1800)
	rows, drawn := fromClients(t, Clients{Seed: 4, Start: 1200 * time.Second, Duration: 300 * time.Second, Rate: 8}, folder)
	by = count(rows)
	near("three quarters of the rate", by[2], 1800)
	near("one quarter", by[10]+by[1000], 600)
	if first, last := rows[0].Timestamp.V, rows[len(rows)-1].Timestamp.V; first != 0 || last > 300_000 || last < 299_000 || math.Abs(drawn.Expected-2400) > 1e-6 {
		t.Errorf("rows are from %g to %g ms; %g are expected", first, last, drawn.Expected)
	}
	rows, _ = fromClients(t, Clients{Seed: 4, Rows: 7}, folder)
	near("a limit of 7 rows", len(rows), 7)
	rows, drawn = fromClients(t, Clients{Seed: 4, Start: 600 * time.Second, Duration: 600 * time.Second}, folder)
	if len(rows) != 0 || drawn.Expected != 0 || drawn.Clients != 2 {
		t.Errorf("%d rows of a part of time without requests; %+v", len(rows), drawn)
	}
}

// TestClientMedia: a prompt of several media has the tokens of all of them.
func TestClientMedia(t *testing.T) {
	lengths := `{"0": {
		"text_tokens": "{100: 1}", "image_tokens": "{1000: 1.0}", "audio_tokens": "{0: 1.0}", "video_tokens": "{5: 1.0}",
		"image_count": "{0: 0.5, 2: 0.5}", "audio_count": "{0: 1.0}", "video_count": "{0: 1.0}", "output_tokens": "{0: 1.0}"
	}}`
	rows, _ := fromClients(t, Clients{}, clientFolder(map[int][2]string{0: {steady(0.01, "Gamma", 1), lengths}}))
	found := map[int64]bool{}
	for _, r := range rows {
		found[r.InputLength.V] = true
		if r.OutputLength.V != 1 { // a reply has at least one token
			t.Fatalf("a reply of %d tokens, want 1", r.OutputLength.V)
		}
	}
	if diff := cmp.Diff(map[int64]bool{100: true, 2100: true}, found); diff != "" {
		t.Errorf("lengths of prompts (-want +got):\n%s", diff)
	}
}

// TestClientsSeeds: the same seed gives the same rows, another seed gives other rows, and a client's rows do not depend on the other
// clients.
func TestClientsSeeds(t *testing.T) {
	one, two := [2]string{steady(0.01, "Weibull", 0.7), someLengths}, [2]string{steady(0.02, "Gamma", 0.2), someLengths}
	of := func(seed uint64, clients map[int][2]string) (inputs []string) {
		rows, _ := fromClients(t, Clients{Seed: seed}, clientFolder(clients))
		for _, r := range rows {
			if r.Class == "client-1" {
				inputs = append(inputs, fmt.Sprint(r.InputLength.V))
			}
		}
		return inputs
	}
	alone := of(1, map[int][2]string{1: one})
	if diff := cmp.Diff(alone, of(1, map[int][2]string{1: one, 2: two})); diff != "" {
		t.Errorf("with another client (-want +got):\n%s", diff)
	}
	if cmp.Equal(alone, of(2, map[int][2]string{1: one})) {
		t.Error("another seed gives the same lengths")
	}
}

// TestClientFaults: errors name the file, the line and what to do, and no invalid input makes a trace.
func TestClientFaults(t *testing.T) {
	good := "0,1,1,Gamma,1,1\n600,0,0,,0,0\n"
	for _, c := range []struct{ why, table, lengths, want string }{
		{"too few columns", "0,1,1,Gamma\n", someLengths, "chunk-5-trace.csv: record on line 1: wrong number of fields; want six columns"},
		{"a rate that is not a number", "0,1,1,Gamma,1,1\n600,x,1,Gamma,1,1\n", someLengths, `chunk-5-trace.csv:2: rate "x": must be a number from 0 to 1e+06`},
		{"a rate that is not finite", "0,NaN,1,Gamma,1,1\n", someLengths, `rate "NaN"`},
		{"an invalid shape", "0,1,1,Weibull,0,1\n", someLengths, `shape "0": must be a number from 0.02 to 1000`},
		{"an unknown distribution", "0,1,1,Pareto,1,1\n", someLengths, `distribution "Pareto": want Gamma or Weibull`},
		{"times that go back", "600,1,1,Gamma,1,1\n0,1,1,Gamma,1,1\n", someLengths, "chunk-5-trace.csv:2: the time is not after that of the line before"},
		{"lengths that are not JSON", good, `{"0": `, "chunk-5-dataset.json: "},
		{"lengths that are not an object", good, `[]`, "chunk-5-dataset.json: want an object of seconds"},
		{"a key that is not seconds", good, `{"now": {}}`, `chunk-5-dataset.json: "now": want a number of seconds`},
		{"a number for a distribution", good, `{"0": {"input_tokens": 3}}`, "chunk-5-dataset.json: 0: input_tokens: want a text such as {9: 0.25, 163: 0.75}"},
		{"a text that is not a distribution", good, `{"0": {"input_tokens": "9", "output_tokens": "{1: 1}"}}`, `input_tokens: "9": want a distribution`},
		{"a probability below 0", good, `{"0": {"input_tokens": "{1: -1}", "output_tokens": "{1: 1}"}}`, `input_tokens: "1: -1": want a number of tokens`},
		{"more tokens than there can be", good, `{"0": {"input_tokens": "{1: 1}", "output_tokens": "{99999999999: 1}"}}`, `output_tokens: "99999999999: 1": want a number of tokens`},
	} {
		_, err := FromClients(Clients{Seed: 1}, clientFolder(map[int][2]string{5: {c.table, c.lengths}}), func(*mooncake.Row) error { return nil })
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.why, err, c.want)
		}
	}
	folder := clientFolder(map[int][2]string{5: {good, ""}})
	delete(folder, "chunk-5-dataset.json")
	if _, err := FromClients(Clients{}, folder, nil); err == nil || !strings.Contains(err.Error(), "each chunk-N-trace.csv needs its chunk-N-dataset.json") {
		t.Errorf("without lengths: %v", err)
	}
	for _, c := range []Clients{{Rows: -1}, {Start: -1}, {Duration: -1}, {Rate: math.NaN()}, {Rate: -1}, {Rate: math.Inf(1)}} {
		whole := clientFolder(map[int][2]string{5: {good, someLengths}})
		if _, err := FromClients(c, whole, func(*mooncake.Row) error { return nil }); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	unknown := clientFolder(map[int][2]string{5: {good, `{"600": {"input_tokens": "{1: 1}", "output_tokens": "{1: 1}"}}`}})
	rows, drawn := fromClients(t, Clients{}, unknown)
	if len(rows) != 0 || drawn.Unknown == 0 {
		t.Errorf("%d rows before there are lengths; %+v", len(rows), drawn)
	}
	stop := errors.New("stop")
	if _, err := FromClients(Clients{}, clientFolder(map[int][2]string{5: {good, someLengths}}), func(*mooncake.Row) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("an error of yield gives %v", err)
	}
	if IsClients(fstest.MapFS{"chunk-x-trace.csv": {}}) || !IsClients(folder) {
		t.Error("a folder of clients is not recognised")
	}
}
