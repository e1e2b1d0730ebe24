// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

//go:build linux

package acceptance

// A separate Prometheus for a test, with the configuration and the options of the compose file, and its API.

import (
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/internal/testport"
)

// prometheus is a Prometheus that accepts metrics over OTLP and scrapes targets.
type prometheus struct {
	*process
	url   string
	begun time.Time
}

// startPrometheus starts a Prometheus and waits until it is ready. The addresses replace those in the configuration: at the first,
// Prometheus scrapes a Collector's own figures; at the other ones, metrics that a Collector has received.
func startPrometheus(t *testing.T, dir, own string, others ...string) *prometheus {
	t.Helper()
	examples, err := filepath.Abs("../../examples")
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(examples, "compose", "prometheus.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	config := strings.NewReplacer("collector:8888", own, "/etc/prometheus/", examples+"/prometheus/", "scrape_interval: 5s", "scrape_interval: 1s",
		"evaluation_interval: 5s", "evaluation_interval: 1s").Replace(string(content))
	for i, address := range others {
		config += fmt.Sprintf("  - job_name: received-%d\n    static_configs:\n      - targets: [%q]\n", i, address)
	}
	file := filepath.Join(dir, "prometheus.yaml")
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	compose, err := os.ReadFile(filepath.Join(examples, "compose", "compose.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	address := testport.Address(t)
	args := []string{"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "tsdb"), "--web.listen-address=" + address}
	for _, option := range regexp.MustCompile(`(?m)^ +- (--(?:web|enable)\S+)$`).FindAllSubmatch(compose, -1) {
		args = append(args, string(option[1]))
	}
	p := &prometheus{url: "http://" + address, begun: time.Now()}
	p.process = start(t, dir, "prometheus", nil, setting(t, "MOONLOOP_PROMETHEUS"), args...)
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(100 * time.Millisecond) {
		if response, err := http.Get(p.url + "/-/ready"); err == nil {
			_ = response.Body.Close()
			if response.StatusCode == http.StatusOK {
				return p
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("Prometheus is not ready\n%s", p.tail())
		}
	}
}

// answered is a series of an answer, with its finite samples in order of time. Of a native histogram, the sample is the number of values.
type answered struct {
	labels  map[string]string
	samples []float64
}

// now queries the values at this moment.
func (p *prometheus) now(t *testing.T, query string) []answered {
	t.Helper()
	return p.ask(t, "query", url.Values{"query": {query}})
}

// always queries the values of every second since the start.
func (p *prometheus) always(t *testing.T, query string) []answered {
	t.Helper()
	return p.ask(t, "query_range", url.Values{
		"query": {query}, "start": {fmt.Sprint(p.begun.Unix())}, "end": {fmt.Sprint(time.Now().Unix())}, "step": {"1"},
	})
}

func (p *prometheus) ask(t *testing.T, how string, parameters url.Values) (all []answered) {
	t.Helper()
	response, err := http.PostForm(p.url+"/api/v1/"+how, parameters)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Error string
		Data  struct {
			Result []struct {
				Metric     map[string]string  `json:"metric"`
				Value      *json.RawMessage   `json:"value"`
				Histogram  *json.RawMessage   `json:"histogram"`
				Values     []*json.RawMessage `json:"values"`
				Histograms []*json.RawMessage `json:"histograms"`
			}
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil || answer.Error != "" {
		t.Fatalf("%s: %v %s", parameters.Get("query"), err, answer.Error)
	}
	for _, r := range answer.Data.Result {
		one := answered{labels: r.Metric}
		for _, raw := range slices.Concat(r.Values, r.Histograms, []*json.RawMessage{r.Value, r.Histogram}) {
			if raw == nil {
				continue
			}
			var sample [2]any // time, and a number as text or a histogram
			if err := json.Unmarshal(*raw, &sample); err != nil {
				t.Fatal(err)
			}
			text := sample[1]
			if histogram, ok := text.(map[string]any); ok {
				text = histogram["count"]
			}
			v, err := strconv.ParseFloat(fmt.Sprint(text), 64)
			if err != nil {
				t.Fatal(err)
			}
			if !math.IsNaN(v) && !math.IsInf(v, 0) {
				one.samples = append(one.samples, v)
			}
		}
		if len(one.samples) > 0 {
			all = append(all, one)
		}
	}
	return all
}

// one queries the only value at this moment.
func (p *prometheus) one(t *testing.T, query string) float64 {
	t.Helper()
	found := p.now(t, query)
	if len(found) != 1 {
		t.Fatalf("%s has %d answers, want one", query, len(found))
	}
	return found[0].samples[0]
}

// exemplars returns how many exemplars of a series have a trace id.
func (p *prometheus) exemplars(t *testing.T, query string) (n int) {
	t.Helper()
	response, err := http.PostForm(p.url+"/api/v1/query_exemplars", url.Values{
		"query": {query}, "start": {fmt.Sprint(p.begun.Unix())}, "end": {fmt.Sprint(time.Now().Unix())},
	})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = response.Body.Close() }()
	var answer struct {
		Data []struct {
			Exemplars []struct{ Labels map[string]string }
		}
	}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		t.Fatal(err)
	}
	for _, series := range answer.Data {
		for _, e := range series.Exemplars {
			if len(e.Labels["trace_id"]) == 32 {
				n++
			}
		}
	}
	return n
}
