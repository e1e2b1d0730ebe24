// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/moonloop/moonloop/agent/carry"
	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/agent/report/page"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// DefaultMaxErrorRate is the share of requests that may fail in a run that passes, unless Config.MaxErrorRate is set. A service of two
// nines may fail as often as that. So a stray failure does not fail a run, but a dead or overloaded engine does.
const DefaultMaxErrorRate = 0.01

// Config is one replay. Trace.Name and Target.URL are needed; everything else has a working zero value.
type Config struct {
	Trace    Trace
	Target   Target
	Prompt   Prompt
	Schedule Schedule
	// Disconnect closes the connections of some requests before they end.
	Disconnect Disconnect
	Telemetry  telemetry.Config
	// Steady selects the part of the run that is the steady state; its figures are reported in addition.
	Steady Steady

	// SLO is the service level that a good request meets. GoodputGoal is the share of requests, 0 to 1, that must be good in a run that
	// passes. Zero = no goal.
	SLO         measure.SLO
	GoodputGoal float64
	// MaxErrorRate is the share of requests, 0 to 1, that may fail in a run that passes; nil = DefaultMaxErrorRate.
	MaxErrorRate *float64
	// AbortErrorRate ends the run early when a larger share of requests has failed, after max(Concurrency, 10) requests; 0 = never.
	// Requests in flight then have Schedule.Grace to end.
	AbortErrorRate float64
	// AbortErrors ends the run early in the same way when this many requests have failed; 0 = never.
	AbortErrors int64
	// StrictVerdict makes a degraded run fail like an invalid one.
	StrictVerdict bool

	// DryRun is set for a configuration that only Predict uses: nothing is sent, and Target.URL is not needed. Run refuses it.
	DryRun bool

	// Out is the directory for summary.json, summary.csv, series.csv, sessions.csv, requests.jsonl and report.html; empty = none.
	// Only one run at a time can use it. If it has one of these files already, Run returns fs.ErrExist before it reads or sends anything.
	// With Force, each file is replaced when the new one is complete.
	Out   string
	Force bool
	// Resume continues the run in Out that was cut short. The rest of the configuration must be that of this run. Force, RunID, Labels,
	// Tool, Command and Settings are then without effect.
	Resume bool
	// NoPage leaves report.html out. TraceURL is the address of a trace in a tracing system, with {trace_id} in it, to which the
	// page links; empty = no links.
	NoPage   bool
	TraceURL string
	// SavePrompts is the file for the bodies of the requests that are sent, as the payloads of a trace's rows; empty = none. If the file
	// exists, Run returns fs.ErrExist, or, with Force, replaces it. The file contains the text of prompts.
	SavePrompts string
	// Slice is the time that each line of series.csv covers, a millisecond or more; 0 = page.DefaultSlice.
	Slice time.Duration
	// RunID is the name of the run in every file, span and metric, and begins the X-Request-Id of each request: at most [journal.MaxName]
	// visible ASCII characters without spaces; empty = random. Shards that start together (Schedule.StartAt) have the same one.
	RunID string
	// Labels are names and values that the caller gives the run, for the report: report.Run.Labels.
	Labels map[string]string
	// Tool is the version of the program, for the report. Command is its command line, without secrets.
	Tool    string
	Command []string
	// Settings are the settings of the program, for the report, without secrets.
	Settings []report.Setting

	// Progress receives a live view once the run has started. May be nil.
	Progress func(*Live)
	// Ended is called when the last request is over, before the results are computed and written. May be nil.
	Ended func()
	// Warn receives each warning that arises before the schedule has ended. Note receives each decision that the run made by itself.
	// Both may be nil. The report has all warnings.
	Warn, Note func(string)

	// DialContext and Waiter replace the network and the timer, for virtual time. A nil Waiter = the kernel's timer.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	Waiter      func(clock.Clock) schedule.Waiter
	// Lead is the time between the last preparation and the schedule's zero, at least 0; 0 = 50 ms.
	Lead time.Duration
}

// Trace is what is replayed.
type Trace struct {
	Name      string    // path, "-" for Stdin, or a URL, see mooncake.Open
	MadeFrom  string    // what reports name if Name is a temporary file: the trace that it was made from; empty = Name
	Stdin     io.Reader // nil = the process's standard input
	BlockSize int       // tokens per hash id; 0 = from the sidecar, else 512
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 = from the sidecar.
	FineBlockSize int
	// Unit is the unit of timestamps that are numbers, one of those that mooncake.ParseUnit returns; 0 = from the sidecar, else
	// milliseconds, or, for numbers that must count from 1970, the unit that gives a plausible date (mooncake.ReaderOptions).
	Unit time.Duration
	Map  mooncake.Mapping // keys of the trace for fields of its rows
	// Sessions says whether the rows of a session have whole prompts or new turns; zero = from the sidecar, else detected.
	Sessions mooncake.SessionMode
	Strict   bool // return an error for flaws that are otherwise tolerated
	// Lenient rejects rows that cannot be used. They have no index and no record. They are written to Quarantine, counted in the report,
	// and affect the verdict. mooncake.Quarantine says how many may be rejected.
	Lenient bool
	// Quarantine is the file for these rows; empty = mooncake.RejectedName in Config.Out.
	Quarantine string
	Lookahead  int // rows; 0 = load.DefaultLookahead
	Start, End time.Duration
	MaxRows    int64
	// Loop is the number of times that the trace is sent; 0 = once. LoopFor sends the trace again and again until this replay time has
	// passed. Only one of the two may be set. LoopFresh gives each pass its own block ids.
	Loop      int
	LoopFor   time.Duration
	LoopFresh bool
	Shard     int // index of this shard, from 0 to Shards-1; 0 if the trace is not sharded
	Shards    int // 0 = not sharded
}

// Target is the engine.
type Target struct {
	URL string // base URL, with or without /v1
	// Further are the base URLs of further engines of the same model, between which Balance chooses for each request.
	Further []string
	Balance Balance // zero = RoundRobin
	// InstanceHeader is the response header in which a router names the instance; empty = the headers of known routers.
	InstanceHeader string
	Model          string // of every row; empty = the row's own, or, if it has none, the first of /v1/models
	Profile        prompt.Profile
	Header         http.Header
	APIKey         string
	TLS            *tls.Config
	HTTP2          bool
	// Connections says which requests may share a connection, one after the other; "" = send.ReuseAny.
	Connections send.Reuse
	// SessionHeader is the header that names a row's session to engines and routers; empty = X-Session-Id.
	SessionHeader string
	// Posts are requests to each engine in addition to those of the trace.
	Posts []Post
	// ReadStamps timestamps arrivals after the read call even if the kernel has better timestamps, to compare the two.
	ReadStamps bool
	Retries    int
	// CacheBlock is the number of tokens in a block of the engine's prefix cache, for the prediction; 0 = from its metrics, else
	// learned from its replies.
	CacheBlock int
	// WaitReady is how long to wait for an engine that is not ready yet; 0 = check once.
	WaitReady time.Duration
	// Timeouts; 0 = none.
	ConnectTimeout, FirstTokenTimeout, IdleTimeout, TotalTimeout time.Duration
}

// Prompt is how rows become requests.
type Prompt struct {
	Endpoint prompt.Endpoint // zero = chat
	Form     prompt.Form     // zero = words for chat, token ids for completions where the profile has them
	NoStream bool
	// Dataset is a file of text from which prompts are made instead of invented words; see package dataset. Empty = none.
	Dataset string
	// Tokenizer is the model's tokenizer.json, which counts the tokens of texts if the engine does not; empty = none.
	Tokenizer string
	// Images says how the images in prompts are made.
	Images prompt.Images
	Seed   uint64
	// Overhead is the number of tokens that the server's chat template adds to each prompt of words; 0 = measure it with two or three
	// requests.
	Overhead int
	TooShort prompt.TooShort
	Extra    json.RawMessage // merged into each body
	// Priorities are the priorities in request bodies, by the class of the row. A row of another class keeps its own.
	Priorities prompt.Priorities
	// Carry says whether prompts contain the replay's own replies where the trace has earlier replies; zero = carry.Auto. CarryBytes is
	// the maximum size of the replies that are kept for that; 0 = carry.DefaultBytes.
	Carry      carry.Mode
	CarryBytes int64
	// Output is the reply length, in tokens, for rows without output_length; OutputCap is the maximum for all rows. 0 = none.
	Output, OutputCap int64
}

// Schedule says when rows are sent.
type Schedule struct {
	Speedup float64 // 0 = 1
	Spread  load.Spread
	// Arrivals sends rows at a rate, in the order of their timestamps; zero = at their timestamps. With a rate, Speedup divides only the
	// delays of turns. The seed is Prompt.Seed.
	Arrivals load.Arrivals
	// FileOrder ignores timestamps: a closed loop of Concurrency requests in file order, or Arrivals in file order. A trace without
	// timestamps is always sent in this way.
	FileOrder bool
	// OpenLoop sends each row at its scheduled time, even if the turn before it, or a row that it waits for, has not ended.
	OpenLoop bool
	// Concurrency is the number of requests in flight: the maximum of a timed schedule (0 = none), the size of a closed loop (0 = 1).
	Concurrency int
	// PrefillConcurrency is the maximum number of requests in flight without a first token; 0 = none.
	PrefillConcurrency int
	// ConcurrencyRampUp is the time in which the maximum number of requests in flight rises from 1 to Concurrency, one by one, at equal
	// intervals; 0 = Concurrency from the beginning. PrefillRampUp is the same for PrefillConcurrency.
	ConcurrencyRampUp, PrefillRampUp time.Duration
	// MaxDuration ends the dispatch after this much replay time; requests in flight then have Grace (0 = 30 s) to end.
	MaxDuration, Grace time.Duration
	// Warmup is the number of requests sent before the schedule starts. They have the lengths of the trace's first rows, but share nothing
	// with their prompts. No figure includes them.
	Warmup int
	// WarmupFor is the time for which warm-up requests are sent; 0 = until Warmup have been sent. The limit that is reached first ends the
	// warm-up.
	WarmupFor time.Duration
	// WarmupGrace is the time that warm-up requests in flight have to end after the last one was sent; 0 = no limit.
	WarmupGrace time.Duration
	// WarmupConcurrency is the maximum number of warm-up requests in flight, up to 1,024; 0 = Concurrency. If that is 0, too, the
	// maximum is 1, or, with WarmupArrivals, 1,024.
	WarmupConcurrency int
	// WarmupArrivals sends the warm-up requests at a rate, or later if WarmupConcurrency requests are in flight. Zero = a closed loop.
	WarmupArrivals load.Arrivals
	// WarmupPrefillConcurrency is the maximum number of warm-up requests in flight without a first token; 0 = none.
	WarmupPrefillConcurrency int
	// WarmupConcurrencyRampUp and WarmupPrefillRampUp are the times in which the two maxima rise from 1; 0 = no rise.
	WarmupConcurrencyRampUp, WarmupPrefillRampUp time.Duration
	// Prepare is how long before its scheduled time a request is prepared: its body is planned, and it gets a connection. At most 1 s; 0 =
	// 2 ms. It has no effect in a closed loop, with a maximum of requests in flight, or with HTTP/2.
	Prepare time.Duration
	// StartAt is the wall-clock time at which the schedule starts, for shards that start together; zero = at once. A run that is not ready
	// by then is refused, unless Fixed is set.
	StartAt time.Time
	// Fixed starts the schedule at StartAt even if that has passed when the replay is ready. Rows that are due by then are sent at once,
	// late.
	Fixed bool
	// ClockReference is an NTP server, host or host:port. The offset of this machine's clock from the server's is measured before and after
	// the run, and recorded. It does not change the schedule. Empty = none.
	ClockReference string
}

// Disconnect is a client that gives up: it closes the connection of a share of the requests, which the seed chooses.
type Disconnect struct {
	Share float64       // of the requests, 0 to 1
	After time.Duration // since the last byte of the request was sent; a reply that is complete by then is served; 0 = at once
}

// Source returns the name by which users know the trace. It may have credentials.
func (t *Trace) Source() string { return cmp.Or(t.MadeFrom, t.Name) }

// Validate reports everything that is wrong with the configuration, without touching the network or the disk.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Trace.Name == "" {
		bad("trace: none given; name a file, a URL, or - for standard input")
	}
	if c.Resume && c.Out == "" {
		bad("resume: no folder of a run that was cut short is given")
	}
	if _, err := journal.ParseName(c.RunID); err != nil {
		bad("run id: %w", err)
	}
	if err := page.CheckTraceURL(c.TraceURL); err != nil {
		bad("trace URL: %w", err)
	}
	for _, check := range []func(bad badFunc){c.checkTarget, c.checkNumbers, c.checkTrace, c.checkSchedule, c.checkRamps, c.checkPrompts, c.checkGoals} {
		check(bad)
	}
	return errors.Join(append(errs, c.bodies().Validate(), c.Telemetry.Validate())...)
}

// bodies returns what the configuration alone says about request bodies, without the numbers that checkNumbers checks.
func (c *Config) bodies() prompt.Options {
	p := c.Prompt
	return prompt.Options{
		Endpoint: p.Endpoint, Form: p.Form, Profile: c.Target.Profile, TooShort: p.TooShort, BlockSize: max(0, c.Trace.BlockSize),
		FineBlockSize: max(0, c.Trace.FineBlockSize), Images: p.Images, Priorities: p.Priorities, ExtraInputs: p.Extra,
	}
}

// badFunc reports something that is wrong.
type badFunc = func(format string, args ...any)

func (c *Config) checkTarget(bad badFunc) {
	if c.Target.URL == "" && !c.DryRun {
		bad("url: none given; name the engine's base URL, such as http://127.0.0.1:8000")
	}
	for i, address := range c.Target.URLs() {
		if err := checkURL(address); err != nil {
			bad("%w", err)
		}
		if slices.Contains(c.Target.URLs()[:i], address) {
			bad("url %s: it is given twice", mooncake.PublicName(address))
		}
	}
	if b := c.Target.Balance; b != "" && !slices.Contains(Balances(), b) {
		bad("balance %q: want %s, %s, %s or %s", b, RoundRobin, LeastLoaded, BySession, ByPrefix)
	}
	for _, err := range []error{send.CheckKey(c.Target.APIKey), send.CheckHeader(c.Target.Header)} {
		if err != nil {
			bad("%w", err)
		}
	}
	if name := c.Target.SessionHeader; name != "" && send.CheckHeader(http.Header{name: nil}) != nil {
		bad("session header %.64q: want a name of letters, digits and -", name)
	}
	if r := c.Target.Connections; !r.Known() {
		bad("connections %q: want %s, %s or %s", r, send.ReuseAny, send.ReuseNever, send.ReuseSession)
	}
	for _, p := range c.Target.Posts {
		if err := p.check(); err != nil {
			bad("engine post %s: %w", p, err)
		}
	}
}

// checkNumbers finds numbers that are below 0 or beyond their limits.
func (c *Config) checkNumbers(bad badFunc) {
	for _, n := range []struct {
		name  string
		value any // int64 or time.Duration
	}{
		{"block size", int64(c.Trace.BlockSize)},
		{"fine block size", int64(c.Trace.FineBlockSize)},
		{"look-ahead", int64(c.Trace.Lookahead)},
		{"start", c.Trace.Start},
		{"end", c.Trace.End},
		{"max requests", c.Trace.MaxRows},
		{"loop", int64(c.Trace.Loop)},
		{"loop", c.Trace.LoopFor},
		{"concurrency", int64(c.Schedule.Concurrency)},
		{"prefill concurrency", int64(c.Schedule.PrefillConcurrency)},
		{"concurrency ramp-up", c.Schedule.ConcurrencyRampUp},
		{"prefill concurrency ramp-up", c.Schedule.PrefillRampUp},
		{"warm-up requests", int64(c.Schedule.Warmup)},
		{"warm-up duration", c.Schedule.WarmupFor},
		{"warm-up grace", c.Schedule.WarmupGrace},
		{"warm-up concurrency", int64(c.Schedule.WarmupConcurrency)},
		{"warm-up prefill concurrency", int64(c.Schedule.WarmupPrefillConcurrency)},
		{"warm-up concurrency ramp-up", c.Schedule.WarmupConcurrencyRampUp},
		{"warm-up prefill ramp-up", c.Schedule.WarmupPrefillRampUp},
		{"max duration", c.Schedule.MaxDuration},
		{"grace", c.Schedule.Grace},
		{"prepare", c.Schedule.Prepare},
		{"cancel after", c.Disconnect.After},
		{"retries", int64(c.Target.Retries)},
		{"wait ready", c.Target.WaitReady},
		{"connect timeout", c.Target.ConnectTimeout},
		{"first-token timeout", c.Target.FirstTokenTimeout},
		{"idle timeout", c.Target.IdleTimeout},
		{"request timeout", c.Target.TotalTimeout},
		{"overhead", int64(c.Prompt.Overhead)},
		{"bytes of kept replies", c.Prompt.CarryBytes},
		{"engine block size", int64(c.Target.CacheBlock)},
		{"output length", c.Prompt.Output},
		{"max output length", c.Prompt.OutputCap},
		{"lead", c.Lead},
		{"abort errors", c.AbortErrors},
		{"shards", int64(c.Trace.Shards)},
	} {
		d, isTime := n.value.(time.Duration)
		i, _ := n.value.(int64)
		if isTime && d < 0 || i < 0 {
			bad("%s %v: it is below 0; want 0 or more", n.name, n.value)
		}
	}
	if c.Slice != 0 && c.Slice < time.Millisecond {
		bad("slice %v: want 1ms or more, or 0 for %v", c.Slice, page.DefaultSlice)
	}
	if c.Schedule.Prepare > time.Second {
		bad("prepare %v: want at most 1s", c.Schedule.Prepare)
	}
	if c.Trace.BlockSize > mooncake.MaxBlockSize {
		bad("block size %d: want at most %d tokens", c.Trace.BlockSize, mooncake.MaxBlockSize)
	}
	share := func(name string, value *float64) {
		if value != nil && !(*value >= 0 && *value <= 1) {
			bad("%s %v: want a share from 0 to 1", name, *value)
		}
	}
	share("goodput goal", &c.GoodputGoal)
	share("cancel share", &c.Disconnect.Share)
	share("abort error rate", &c.AbortErrorRate)
	share("max error rate", c.MaxErrorRate)
}

func (c *Config) checkTrace(bad badFunc) {
	switch t := c.Trace; {
	case t.Loop > 1 && t.LoopFor > 0:
		bad("loop %d: want a number of passes or a duration, not both", t.Loop)
	case (t.Loop > 1 || t.LoopFor > 0) && t.Name == "-":
		bad("loop: standard input can be read only once; name a file")
	case (t.Loop > 1 || t.LoopFor > 0) && (t.Start > 0 || t.End > 0):
		bad("loop: a part of the trace (start, end) cannot be looped; cut it out with moonloop transform, and loop that")
	case t.LoopFor > 0 && c.Schedule.Arrivals.AtOnce():
		bad("loop %v: with all rows at once, a duration never ends; want a number of passes", t.LoopFor)
	}
	switch t := c.Trace; {
	case t.Shards == 0 && t.Shard != 0:
		bad("shard %d: the number of shards is missing, so the whole trace would be sent; set both or neither", t.Shard)
	case t.Shards > 0 && (t.Shard < 0 || t.Shard >= t.Shards):
		bad("shard %d of %d: want 0 to %d", t.Shard, t.Shards, t.Shards-1)
	}
	if t := c.Trace; t.End > 0 && t.End < t.Start {
		bad("window: its end %v is before its start %v", t.End, t.Start)
	}
	if u := c.Trace.Unit; u != 0 && mooncake.UnitName(u) == "" {
		bad("time unit %v: want 1ms, 1s, 1µs or 1ns", u)
	}
	if m := c.Trace.Sessions; m > mooncake.SessionNone {
		bad("session mode %d: want full, delta or 0", m)
	}
	switch t := c.Trace; {
	case t.Lenient && t.Strict:
		bad("lenient: strict refuses a trace for rows that lenient rejects; give one of --lenient and --strict")
	case t.Lenient && c.Out == "" && t.Quarantine == "" && !c.DryRun:
		bad("lenient: there is no file for the rows that cannot be used; give --quarantine FILE or --out DIR")
	case !t.Lenient && t.Quarantine != "":
		bad("quarantine: without --lenient the first row that cannot be used ends the replay; give both or neither")
	}
}

func (c *Config) checkSchedule(bad badFunc) {
	if !(c.Schedule.Speedup >= 0) || math.IsInf(c.Schedule.Speedup, 0) { // NaN too
		bad("speed-up %v: want a number above 0", c.Schedule.Speedup)
	}
	switch s := c.Schedule; {
	case s.Spread > load.SpreadEven:
		bad("spread %d: want none, uniform or even", s.Spread)
	case s.Spread != load.SpreadNone && s.Arrivals.Any():
		bad("spread: it has no effect with a request rate (--request-rate), which replaces the timestamps; leave one of the two out")
	case s.Spread != load.SpreadNone && s.FileOrder:
		bad("spread: it has no effect in file order (--no-fixed-schedule), which ignores the timestamps; leave one of the two out")
	}
	if err := c.Schedule.Arrivals.Validate(); err != nil {
		bad("%w", err)
	}
	if err := c.Schedule.WarmupArrivals.Validate(); err != nil {
		bad("warm-up: %w", err)
	}
	c.Steady.check(c.Schedule.MaxDuration, bad)
	if c.Schedule.FileOrder && c.Schedule.OpenLoop && !c.Schedule.Arrivals.Any() {
		bad("open loop: a closed loop (--no-fixed-schedule) does not use timestamps; leave one out")
	}
}

// checkRamps finds ramps without a maximum to rise to, limits on first tokens without a stream, and too large a warm-up.
func (c *Config) checkRamps(bad badFunc) {
	if n := max(c.Schedule.PrefillConcurrency, c.Schedule.WarmupPrefillConcurrency); n > 0 && c.Prompt.NoStream {
		bad("prefill concurrency %d: whole replies have no first token; leave out --no-stream", n)
	}
	if s := c.Schedule; s.WarmupConcurrency > maxWarming {
		bad("warm-up concurrency %d: want at most %d", s.WarmupConcurrency, maxWarming)
	}
	for _, ramp := range []struct {
		name, of string
		over     time.Duration
		to       int
	}{
		{"concurrency ramp-up", "--concurrency", c.Schedule.ConcurrencyRampUp, c.Schedule.Concurrency},
		{"prefill concurrency ramp-up", "--prefill-concurrency", c.Schedule.PrefillRampUp, c.Schedule.PrefillConcurrency},
		{"warm-up concurrency ramp-up", "--warmup-concurrency", c.Schedule.WarmupConcurrencyRampUp, cmp.Or(c.Schedule.WarmupConcurrency, c.Schedule.Concurrency)},
		{"warm-up prefill ramp-up", "--warmup-prefill-concurrency", c.Schedule.WarmupPrefillRampUp, c.Schedule.WarmupPrefillConcurrency},
	} {
		if ramp.over > 0 && ramp.to == 0 {
			bad("%s %v: its maximum is missing; give %s N", ramp.name, ramp.over, ramp.of)
		}
	}
}

func (c *Config) checkPrompts(bad badFunc) {
	if m := c.Prompt.Carry; m != "" && m != carry.Auto && m != carry.Always && m != carry.Never {
		bad("carry replies %q: want %q, %q or %q", m, carry.Auto, carry.Always, carry.Never)
	}
	if c.Prompt.Dataset != "" && c.Prompt.Form == prompt.Tokens {
		bad("dataset: its text cannot be sent as token ids; leave one of the two out")
	}
	ofTokens := c.SLO
	ofTokens.E2E = 0
	switch {
	case ofTokens.Any() && c.Prompt.Endpoint == prompt.Embeddings:
		bad("slo %s: an embedding has neither a first token nor further ones; give only e2e", c.SLO)
	case ofTokens.Any() && c.Prompt.NoStream: // nothing would be measured, so every request would miss or meet it
		bad("slo %s: of whole replies, the times of single tokens are not known; give only e2e, or leave out --no-stream", c.SLO)
	}
	if c.Prompt.Endpoint == prompt.Embeddings && c.Schedule.PrefillConcurrency > 0 {
		bad("prefill concurrency %d: an embedding has no first token; cap requests with concurrency", c.Schedule.PrefillConcurrency)
	}
}

func (c *Config) checkGoals(bad badFunc) {
	if c.GoodputGoal > 0 && !c.SLO.Any() {
		bad("goodput goal: it needs a service level, such as --slo ttft=500ms")
	}
}

// URLs returns the base URLs of all engines.
func (t Target) URLs() []string {
	if t.URL == "" {
		return nil
	}
	return append([]string{t.URL}, t.Further...)
}

// checkURL returns an error if an engine's base URL is unusable. The error does not repeat secrets in the URL.
func checkURL(address string) error {
	switch u, err := url.Parse(address); {
	case !strings.Contains(address, "://"):
		return fmt.Errorf("url %q: begin it with http:// or https://", address)
	case err != nil:
		return errors.New("url: it cannot be read; want http://host:port or https://host:port") // err would repeat the URL's secrets
	case u.Port() != "" && !validPort(u.Port()):
		return fmt.Errorf("url: port %s: want 1 to 65535", u.Port())
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("url %q: want http://host:port or https://host:port", mooncake.PublicName(address))
	case u.User != nil:
		return errors.New("url: it contains a user name; pass credentials by --api-key-env or --api-key-file")
	}
	return nil
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// The defaults of a configuration.
const (
	defaultSessionHeader = "X-Session-Id"

	defaultLead = 50 * time.Millisecond
	// defaultPrepare is enough for a burst of 20 requests, of about 0.1 ms each, or for a connection within a data centre. Each
	// request that waits has its own connection, so more time would cost memory in the engine and here.
	defaultPrepare = 2 * time.Millisecond
	defaultGrace   = 30 * time.Second
	// longest is the maximum of each duration, so that no sum of times overflows. Nobody waits this long.
	longest = 50 * 365 * 24 * time.Hour
)

// resolved returns a valid configuration in which defaults replace zeros.
func (c Config) resolved() Config {
	if c.RunID == "" {
		c.RunID = c.sharedRunID()
	}
	if c.RunID == "" {
		var id [8]byte
		_, _ = rand.Read(id[:]) // never fails
		c.RunID = hex.EncodeToString(id[:])
	}
	if c.MaxErrorRate == nil {
		c.MaxErrorRate = new(DefaultMaxErrorRate)
	}
	c.Lead = cmp.Or(c.Lead, defaultLead)
	s := &c.Schedule
	s.Speedup = cmp.Or(s.Speedup, 1)
	s.ConcurrencyRampUp, s.PrefillRampUp = min(s.ConcurrencyRampUp, longest), min(s.PrefillRampUp, longest)
	s.WarmupFor, s.WarmupGrace = min(s.WarmupFor, longest), min(s.WarmupGrace, longest)
	s.WarmupConcurrencyRampUp, s.WarmupPrefillRampUp = min(s.WarmupConcurrencyRampUp, longest), min(s.WarmupPrefillRampUp, longest)
	c.Target.SessionHeader = cmp.Or(c.Target.SessionHeader, defaultSessionHeader)
	s.MaxDuration, s.Grace = min(s.MaxDuration, longest), min(cmp.Or(s.Grace, defaultGrace), longest)
	if s.Prepare = cmp.Or(s.Prepare, defaultPrepare); c.Target.HTTP2 { // headers would be sent at once
		s.Prepare = 0
	}
	return c
}

// oneModel returns the model that the configuration sets for every row, or "".
func (c *Config) oneModel() string {
	var extra struct{ Model string }
	_ = json.Unmarshal(c.Prompt.Extra, &extra) // package prompt reports an object that it cannot use
	return cmp.Or(extra.Model, c.Target.Model)
}
