// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package collector

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the tables of docs/plan.md anew")

// planPrices is testdata/plan-prices.json: the requirements, a cloud's list prices, and two figures of other measurements.
type planPrices struct {
	Rate    float64 `json:"rate"`             // requests/s
	Busy    float64 `json:"busy"`             // part of a rented core that may be used
	Ports   float64 `json:"ports"`            // Linux's default for connections to one address
	Stream  float64 `json:"stream_kib"`       // memory of an open stream
	VCPU    float64 `json:"vcpu_hour"`        // $
	Stored  float64 `json:"gb_month"`         // $
	Put     float64 `json:"put_thousand"`     // $
	Between float64 `json:"gb_between_zones"` // $, both ends
}

const (
	seconds    = 86400.  // of a day
	ofAnObject = 100_000 // records, of examples/capture/s3.yaml, or the spans of 5 s
	collector4 = 4       // cores of a Collector
)

// planLine is a line of a table, with its value for a shape and for what is known about its prompts.
type planLine struct {
	what string
	of   func(p planPrices, s planCosts, c planCapture) string
}

// planCaptureLines cover everything until a day's trace is stored.
var planCaptureLines = []planLine{
	{"telemetry that arrives, Gbit/s", func(p planPrices, _ planCosts, c planCapture) string { return figure(p.Rate * c.OTLP * 8 / 1e9) }},
	{"Collectors that write objects: cores in use", func(p planPrices, _ planCosts, c planCapture) string { return figure(p.Rate * c.ToS3 / 1e6) }},
	{"the same, rented, $ a day", func(p planPrices, _ planCosts, c planCapture) string {
		return dollars(p.Rate * c.ToS3 / 1e6 / p.Busy * 24 * p.VCPU)
	}},
	{"objects, TB a day", func(p planPrices, _ planCosts, c planCapture) string {
		return figure(p.Rate * c.Object * seconds / 1e12)
	}},
	{"uploads a day, with their price", func(p planPrices, _ planCosts, c planCapture) string {
		collectors := p.Rate * c.ToS3 / 1e6 / p.Busy / collector4
		puts := max(p.Rate/ofAnObject, collectors/5) * seconds
		return figure(puts) + ", " + dollars(puts/1000*p.Put)
	}},
	{"a day's objects, kept for a month", func(p planPrices, _ planCosts, c planCapture) string {
		return dollars(p.Rate * c.Object * seconds / 1e9 * p.Stored)
	}},
	{"by Kafka instead: cores in use of senders, and of readers", func(p planPrices, _ planCosts, c planCapture) string {
		return figure(p.Rate*c.ToKafka/1e6) + ", " + figure(p.Rate*c.FromKafka/1e6)
	}},
	{"by Kafka: TB a day, in one replica", func(p planPrices, _ planCosts, c planCapture) string {
		return figure(p.Rate * c.Message * seconds / 1e12)
	}},
	{"by Kafka: between zones, three replicas, $ a day", func(p planPrices, _ planCosts, c planCapture) string {
		return dollars(2 * p.Rate * c.Message * seconds / 1e9 * p.Between)
	}},
	{"`compile` of a day: core hours, with their price", func(p planPrices, _ planCosts, c planCapture) string {
		hours := p.Rate * c.Compile / 1e6 * 24
		return figure(hours) + ", " + dollars(hours/p.Busy*p.VCPU)
	}},
	{"trace of a day, TB: `.jsonl`, `.zst`, `.parquet`", func(p planPrices, _ planCosts, c planCapture) string {
		tb := func(bytes float64) string { return figure(p.Rate * bytes * seconds / 1e12) }
		return tb(c.JSONL) + ", " + tb(c.Zstd) + ", " + tb(c.Parquet)
	}},
	{"a day's `.parquet`, kept for a month", func(p planPrices, _ planCosts, c planCapture) string {
		return dollars(p.Rate * c.Parquet * seconds / 1e9 * p.Stored)
	}},
}

// planReplayLines cover a replay in real time, which sends as many requests as production did.
var planReplayLines = []planLine{
	{"CPU of a request, µs", func(_ planPrices, s planCosts, _ planCapture) string { return figure(s.Replay.CPU) }},
	{"requests/s of a core", func(_ planPrices, s planCosts, _ planCapture) string { return figure(1e6 / s.Replay.CPU) }},
	{"output tokens/s of a core", func(_ planPrices, s planCosts, _ planCapture) string { return figure(1e6 / s.Replay.CPU * s.Output) }},
	{"cores in use", func(p planPrices, s planCosts, _ planCapture) string { return figure(p.Rate * s.Replay.CPU / 1e6) }},
	{"pods of 4 cores (`--shard auto/N`)", func(p planPrices, s planCosts, _ planCapture) string {
		return figure(p.Rate * s.Replay.CPU / 1e6 / p.Busy / 4)
	}},
	{"rented, $ an hour", func(p planPrices, s planCosts, _ planCapture) string {
		return dollars(p.Rate * s.Replay.CPU / 1e6 / p.Busy * p.VCPU)
	}},
	{"sent to the engines, Gbit/s", func(p planPrices, s planCosts, _ planCapture) string { return figure(p.Rate * s.Replay.Up * 8 / 1e9) }},
	{"received, Gbit/s", func(p planPrices, s planCosts, _ planCapture) string { return figure(p.Rate * s.Replay.Down * 8 / 1e9) }},
	{"streams open at once", func(p planPrices, s planCosts, _ planCapture) string { return figure(p.Rate * s.Replay.Seconds) }},
	{"streams of a core", func(_ planPrices, s planCosts, _ planCapture) string {
		return figure(1e6 / s.Replay.CPU * s.Replay.Seconds)
	}},
	{"memory of the streams, GiB", func(p planPrices, s planCosts, _ planCapture) string {
		return figure(p.Rate * s.Replay.Seconds * p.Stream / (1 << 20))
	}},
	{"addresses of clients, to one of the engines", func(p planPrices, s planCosts, _ planCapture) string {
		return figure(p.Rate * s.Replay.Seconds / p.Ports)
	}},
}

// planSampleLines cover a sample of 1 %, or of 0.1 % where stated. All telemetry still arrives, and is hashed.
var planSampleLines = []planLine{
	{"Collectors: cores in use", func(p planPrices, _ planCosts, c planCapture) string { return figure(p.Rate * c.ToS3 / 1e6) }},
	{"1 %: objects, GB a day", func(p planPrices, s planCosts, _ planCapture) string {
		return figure(p.Rate * s.Capture["text"].Object * seconds / 1e11)
	}},
	{"1 %: kept for a month", func(p planPrices, s planCosts, _ planCapture) string {
		return dollars(p.Rate * s.Capture["text"].Object * seconds / 1e11 * p.Stored)
	}},
	{"1 %: `compile` of a day, core hours", func(p planPrices, s planCosts, _ planCapture) string {
		return figure(p.Rate * s.Capture["text"].Compile / 1e8 * 24)
	}},
	{"1 %: a replay in real time, cores in use", func(p planPrices, s planCosts, _ planCapture) string { return figure(p.Rate * s.Replay.CPU / 1e8) }},
	{"0.1 %: objects, GB a day", func(p planPrices, s planCosts, _ planCapture) string {
		return figure(p.Rate * s.Capture["text"].Object * seconds / 1e12)
	}},
	{"0.1 %: a replay in real time, cores in use", func(p planPrices, s planCosts, _ planCapture) string { return figure(p.Rate * s.Replay.CPU / 1e9) }},
}

// planCostLines are the measurements of one request.
var planCostLines = []planLine{
	{"bytes of OTLP", func(_ planPrices, _ planCosts, c planCapture) string { return figure(c.OTLP) }},
	{"Collector that writes objects, CPU, µs", func(_ planPrices, _ planCosts, c planCapture) string { return figure(c.ToS3) }},
	{"bytes in an object", func(_ planPrices, _ planCosts, c planCapture) string { return figure(c.Object) }},
	{"Collector that writes to Kafka, CPU, µs", func(_ planPrices, _ planCosts, c planCapture) string { return figure(c.ToKafka) }},
	{"bytes in Kafka, after zstd", func(_ planPrices, _ planCosts, c planCapture) string { return figure(c.Message) }},
	{"Collector that reads Kafka, CPU, µs", func(_ planPrices, _ planCosts, c planCapture) string { return figure(c.FromKafka) }},
	{"`compile`, CPU, µs", func(_ planPrices, _ planCosts, c planCapture) string { return figure(c.Compile) }},
	{"bytes of trace: `.jsonl`, `.zst`, `.parquet`", func(_ planPrices, _ planCosts, c planCapture) string {
		return figure(c.JSONL) + ", " + figure(c.Zstd) + ", " + figure(c.Parquet)
	}},
}

// TestPlan: the tables of docs/plan.md are computed from testdata/plan-measured.json and testdata/plan-prices.json; -update writes them.
func TestPlan(t *testing.T) {
	var measured planMeasured
	var prices planPrices
	for name, into := range map[string]any{"plan-measured.json": &measured, "plan-prices.json": &prices} {
		content, err := os.ReadFile(filepath.Join("testdata", name))
		if err == nil {
			err = json.Unmarshal(content, into)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	name := filepath.Join(root, "docs", "plan.md")
	content, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	page := string(content)
	identities := []string{"text", "512", "16"}
	for section, made := range map[string]string{
		"shapes":  planShapesTable(measured),
		"costs":   planTable(planCostLines, prices, measured, identities...),
		"capture": planTable(planCaptureLines, prices, measured, identities...),
		"replay":  planTable(planReplayLines, prices, measured, ""),
		"sample":  planTable(planSampleLines, prices, measured, "text, 1 %"),
	} {
		begin, end := "<!-- "+section+" -->\n", "<!-- end -->"
		before, rest, found := strings.Cut(page, begin)
		_, after, ends := strings.Cut(rest, end)
		if !found || !ends {
			t.Fatalf("docs/plan.md has no place for %s", section)
		}
		page = before + begin + made + end + after
	}
	if *update {
		write(t, filepath.Dir(name), "plan.md", page)
	} else if page != string(content) {
		t.Error("the tables of docs/plan.md are not those of testdata/plan-*.json: go test ./test/collector -run '^TestPlan$' -update")
	}
}

func planShapesTable(m planMeasured) string {
	var b strings.Builder
	b.WriteString("| shape | requests measured | prompt, tokens | reply, tokens |\n|---|---|---|---|\n")
	for _, s := range planShapes {
		c := m.Shapes[s.name]
		fmt.Fprintf(&b, "| %s | %d | %.0f | %.1f |\n", s.name, c.Requests, c.Input, c.Output)
	}
	fmt.Fprintf(&b, "\nMeasured on %s, on %s. ", m.Date, m.Machine)
	if m.Others == nil {
		b.WriteString("How much CPU other programs used meanwhile was not measured.\n")
	} else {
		fmt.Fprintf(&b, "Other programs used %s cores meanwhile.\n", figure(*m.Others))
	}
	return b.String()
}

// planTable returns a table with a column for each shape and each kind of knowledge about prompts.
func planTable(lines []planLine, p planPrices, m planMeasured, identities ...string) string {
	var b strings.Builder
	b.WriteString("| |")
	for _, s := range planShapes {
		for _, identity := range identities {
			b.WriteString(" " + strings.TrimSuffix(s.name+", "+strings.TrimSuffix(identity, ", 1 %"), ", ") + " |")
		}
	}
	b.WriteString("\n|---" + strings.Repeat("|---", len(planShapes)*len(identities)) + "|\n")
	for _, line := range lines {
		b.WriteString("| " + line.what + " |")
		for _, s := range planShapes {
			for _, identity := range identities {
				c := m.Shapes[s.name]
				b.WriteString(" " + line.of(p, c, c.Capture[identity]) + " |")
			}
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// figure formats a value with two or three significant digits.
func figure(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%.1f M", v/1e6)
	case v >= 1000:
		n := fmt.Sprintf("%.0f", v)
		return n[:len(n)-3] + "," + n[len(n)-3:]
	case v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2g", v)
	}
}

func dollars(v float64) string { return "$" + figure(v) }
