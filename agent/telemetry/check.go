// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/moonloop/moonloop/mooncake"
)

// checkTime bounds Check: a wrong endpoint is told in the first second of a run.
const checkTime = 800 * time.Millisecond

// checkGrace is how long a question may take to end once the time is over; see within.
const checkGrace = 100 * time.Millisecond

// Check asks each OTLP receiver that Start would export to whether it takes telemetry, with an export that holds none. It
// returns in a second at most.
//
// The warnings say what would be lost, where to, why and what to do. They end no run: a receiver may be back in time, and
// what it misses until then is kept, as far as Config.QueueBytes go. The error is one of configuration, the same that Start
// returns.
func Check(ctx context.Context, cfg Config) (warnings []string, err error) {
	return check(ctx, cfg, checkTime)
}

func check(ctx context.Context, cfg Config, limit time.Duration) (warnings []string, err error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	if disabled() {
		return nil, nil
	}
	c := cfg.withDefaults()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	found, errs := make([]finding, len(signals)), make([]error, len(signals))
	var asked sync.WaitGroup
	for i, s := range signals {
		if !s.byOTLP(&c) {
			continue
		}
		asked.Go(func() { found[i], errs[i] = s.ask(ctx, &c, limit) })
	}
	asked.Wait()
	for _, err := range errs {
		if err != nil { // what both have in common is said once
			return nil, err
		}
	}
	spans, figures := found[0], found[1]
	if spans.what != "" && spans.host == figures.host && spans.what == figures.what {
		spans.path = ""
		return []string{spans.text("spans and metrics")}, nil
	}
	for i, f := range found {
		if f.what != "" {
			warnings = append(warnings, f.text(signals[i].plural()))
		}
	}
	return warnings, nil
}

// signals are both, in the order in which they are told.
var signals = []signal{traces, metrics}

// plural is what people call the signal's telemetry.
func (s signal) plural() string {
	if s == traces {
		return "spans"
	}
	return "metrics"
}

// path is what OTLP over HTTP adds to a base URL.
func (s signal) path() string { return "/v1/" + strings.ToLower(string(s)) }

// byOTLP reports whether Start exports the signal by OTLP.
func (s signal) byOTLP(c *Config) bool {
	if s == traces && c.SpanExporter != nil || s == metrics && c.MetricReader != nil {
		return false
	}
	return s.exporter(c) == exporterOTLP
}

// finding is what is wrong with one receiver; without what, nothing is.
type finding struct {
	host, path string // of the receiver, as a URL
	setting    string // variable that names it; empty without one
	what, cure string
}

func (f finding) text(lost string) string {
	text := "telemetry: " + lost + " do not arrive at " + f.host + f.path
	if f.setting != "" {
		text += " (" + f.setting + ")"
	}
	text += ": " + f.what
	if f.cure != "" {
		text += "; " + f.cure
	}
	return text
}

// ask sends the signal's receiver an export without telemetry.
func (s signal) ask(ctx context.Context, c *Config, limit time.Duration) (finding, error) {
	protocol, err := s.check(c)
	if err != nil {
		return finding{}, err
	}
	send := askForSpans
	if s == metrics {
		send = askForMetrics
	}
	if err = within(ctx, checkGrace, func() error { return send(ctx, c) }); err == nil {
		return finding{}, nil
	}
	f := s.receiver(c, protocol)
	f.what, f.cure = s.diagnose(err, protocol, limit)
	return f, nil
}

func askForSpans(ctx context.Context, c *Config) error {
	client, err := newTraceClient(c)
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	err = client.UploadTraces(ctx, []*tracepb.ResourceSpans{{}})
	_ = client.Stop(ctx) // it has nothing under way
	return err
}

func askForMetrics(ctx context.Context, c *Config) error {
	exporter, err := newMetricExporter(ctx, c, true)
	if err != nil {
		return err
	}
	err = exporter.Export(ctx, new(metricdata.ResourceMetrics))
	_ = exporter.Shutdown(ctx) // as above
	return err
}

// endpoint returns the variable that names the signal's receiver, and its value; both are empty where none does.
func (s signal) endpoint() (variable, value string) {
	own, family := s.otlpVariables("ENDPOINT")[1], s.otlpVariables("ENDPOINT")[0]
	for _, name := range []string{own, family} {
		if v := strings.TrimSpace(os.Getenv(name)); v != "" {
			return name, v
		}
	}
	return "", ""
}

// checkEndpoint says what is wrong with the URL that the environment gives. The exporters would go to localhost instead.
func (s signal) checkEndpoint(c *Config, protocol string) error {
	variable, value := s.endpoint()
	if c.Endpoint != "" || value == "" {
		return nil
	}
	if u, err := url.Parse(value); err == nil && protocol == ProtocolGRPC && u.Scheme == "unix" {
		return nil
	}
	return checkURL(variable, value)
}

// checkURL says what is wrong with the endpoint that has a name, and repeats no user, password or query of it.
func checkURL(name, endpoint string) error {
	const want = "want http://host:port or https://host:port"
	u, err := url.Parse(endpoint)
	switch {
	case err != nil, !strings.Contains(endpoint, "://") && strings.ContainsAny(endpoint, "@?#"):
		return fmt.Errorf("%s: not a URL; %s", name, want)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("%s %q: %s", name, mooncake.PublicName(endpoint), want)
	}
	return nil
}

// receiver says where the signal goes, without credentials.
func (s signal) receiver(c *Config, protocol string) (f finding) {
	base := c.Endpoint
	if base == "" {
		f.setting, base = s.endpoint()
	}
	if base == "" { // the exporters' default
		base = "http://localhost:" + map[string]string{ProtocolGRPC: "4317", ProtocolHTTP: "4318"}[protocol]
	}
	u, err := url.Parse(base)
	if err != nil {
		return f // checked before
	}
	f.host = u.Scheme + "://" + u.Host
	switch {
	case protocol == ProtocolGRPC:
	case f.setting == s.otlpVariables("ENDPOINT")[1]: // taken as it stands
		f.path = u.Path
	default:
		f.path = strings.TrimSuffix(u.Path, "/") + s.path()
	}
	return f
}

// diagnose says what an export's error means, and what to do.
func (s signal) diagnose(err error, protocol string, within time.Duration) (what, cure string) {
	text := err.Error()
	says := func(words string) bool { return strings.Contains(text, words) }
	code := codes.OK
	if grpc, ok := status.FromError(err); ok {
		code = grpc.Code()
	}
	const kept = "what is sent until then is kept, as far as the queue goes"
	switch {
	case says("no such host"), says("name resolver error"):
		return "no such host", "is the name right?"
	case says("connection refused"):
		return "nobody listens there (connection refused)", "start the receiver, or correct the endpoint; " + kept
	case says("malformed HTTP response"), says("readLoopPeekFailLocked"): // which it is depends on who speaks first
		return "a port of gRPC was sent HTTP", "give --otlp-protocol=grpc (OTEL_EXPORTER_OTLP_PROTOCOL=grpc), or the receiver's HTTP port, which is mostly 4318"
	case protocol == ProtocolGRPC && (says("error reading server preface: http2:") || says("HTTP status code")):
		return "a port of HTTP was sent gRPC", "give --otlp-protocol=http/protobuf (OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf), or the receiver's gRPC port, which is mostly 4317"
	case protocol == ProtocolGRPC && says("server preface"): // reset, or ended: which it is depends on who is faster
		return "the connection was closed before a word of gRPC came back", "does the endpoint begin with https://? A receiver that speaks TLS wants that"
	case code == codes.Unimplemented:
		return "the receiver does not take them", fmt.Sprintf("give it a pipeline for %s, or set OTEL_%s_EXPORTER=none", s.plural(), s)
	case says("404 Not Found"), says("405 Method Not Allowed"):
		return "nothing at this path takes them (HTTP 404 or 405)", fmt.Sprintf("give a base URL, to which %s is added, or the receiver a pipeline for %s, or set OTEL_%s_EXPORTER=none", s.path(), s.plural(), s)
	case says("415 Unsupported Media Type"):
		return "it does not take OTLP (415 Unsupported Media Type)", "is it an OTLP receiver, and does it take protobuf?"
	case code == codes.PermissionDenied, says("403 Forbidden"):
		return "the receiver refuses access", "what may the token in OTEL_EXPORTER_OTLP_HEADERS do?"
	}
	switch troubleOf(err) {
	case late:
		return fmt.Sprintf("no answer within %v", within), "can it be reached from here, and is it the right port? " + strings.ToUpper(kept[:1]) + kept[1:]
	case busy:
		return "the receiver is overloaded, or what it passes its telemetry to is: " + errorText(unwrapped(err)), kept
	default:
		return errorText(unwrapped(err)), ""
	}
}

// unwrapped returns the part of an exporter's error that says what happened, without what was attempted.
func unwrapped(err error) error {
	type withStatus interface {
		error
		GRPCStatus() *status.Status
	}
	if of, ok := errors.AsType[withStatus](err); ok {
		return fmt.Errorf("%v: %s", of.GRPCStatus().Code(), of.GRPCStatus().Message())
	}
	if of, ok := errors.AsType[*url.Error](err); ok {
		return of.Err
	}
	if _, answer, found := strings.Cut(err.Error(), "failed to send "); found { // "to URL: 400 Bad Request (body: ...)"
		if _, said, found := strings.Cut(answer, ": "); found {
			return errors.New("HTTP " + said)
		}
	}
	return errors.New(strings.TrimPrefix(strings.TrimPrefix(err.Error(), "failed to upload metrics: "), "retry-able request failure: "))
}
