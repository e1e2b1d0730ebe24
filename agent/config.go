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
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

// DefaultMaxErrorRate is the share of requests that may fail for a run to pass, unless Config.MaxErrorRate says another. It is
// what a service of two nines is allowed: a stray failure does not fail a run, a dead or overloaded engine does.
const DefaultMaxErrorRate = 0.01

// Config is one replay. Trace.Name and Target.URL are needed; everything else has a working zero value.
type Config struct {
	Trace    Trace
	Target   Target
	Prompt   Prompt
	Schedule Schedule
	// Disconnect gives up some of the requests.
	Disconnect Disconnect
	Telemetry  telemetry.Config
	// Steady asks for the figures of the steady state, too.
	Steady Steady

	// SLO is the service level that a good request meets; GoodputGoal the share of requests, 0 to 1, that
	// must be good for the run to pass. Zero = no goal.
	SLO         measure.SLO
	GoodputGoal float64
	// MaxErrorRate is the share of requests, 0 to 1, that may fail for the run to pass; nil = DefaultMaxErrorRate.
	MaxErrorRate *float64
	// AbortErrorRate ends the run early when a larger share has failed after max(Concurrency, 10) requests;
	// 0 = never. What is under way then has Schedule.Grace to end.
	AbortErrorRate float64
	// AbortErrors ends the run early in the same way when so many have failed; 0 = never.
	AbortErrors int64
	// StrictVerdict makes a degraded run fail like an invalid one.
	StrictVerdict bool

	// DryRun says that Predict alone is wanted: nothing is sent, and Target.URL is not needed. Run refuses it.
	DryRun bool

	// Out is the directory for summary.json, summary.csv, series.csv, sessions.csv, requests.jsonl and report.html; empty = none.
	// The run has it to itself. When it holds one of these files already, Run refuses it with fs.ErrExist, before anything is read or
	// sent; with Force each is replaced when the new one is complete.
	Out   string
	Force bool
	// Resume goes on with the run that was broken off in Out, which the rest of the configuration must describe as it did then. Without
	// effect beside it are Force, RunID and the report's words on the run but for Telemetry.
	Resume bool
	// NoPage leaves report.html out. TraceURL is the address of a trace in a tracing system, with {trace_id} in it, to which the
	// page links; empty = no links.
	NoPage   bool
	TraceURL string
	// SavePrompts is the file for the bodies of the requests that are sent, as the payloads of a trace's rows; empty = none. What is
	// there is refused with fs.ErrExist, and with Force replaced. The file holds the text of prompts.
	SavePrompts string
	// Slice is the length of a line of series.csv; 0 = page.DefaultSlice.
	Slice time.Duration
	// RunID names the run in every artefact; empty = a new random one, or for shards that start together (Schedule.StartAt) one that is
	// the same for all of them.
	RunID string
	// Labels are what the caller wants to be said of the run: report.Run.Labels.
	Labels map[string]string
	// Tool is the version of the program, for the report; Command the command line, secrets left out.
	Tool    string
	Command []string
	// Settings are what the program was told, for the report, secrets left out.
	Settings []report.Setting

	// Progress receives a live view once the run has started. May be nil.
	Progress func(*Live)
	// Warn receives each warning that arises before the schedule has ended, Note what the run decided by itself. May
	// be nil: warnings, all of them, are in the report.
	Warn, Note func(string)

	// DialContext and Waiter replace the network and the timer, for virtual time. Waiter nil = the kernel's.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	Waiter      func(clock.Clock) schedule.Waiter
	// Lead is the time between the last preparation and the schedule's zero; 0 = 50 ms.
	Lead time.Duration
}

// Trace is what is replayed.
type Trace struct {
	Name      string    // path, "-" for Stdin, or an http(s) URL
	Stdin     io.Reader // nil = the process's standard input
	BlockSize int       // tokens per hash id; 0 = the sidecar's, else 512
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 = the sidecar's.
	FineBlockSize int
	// Unit is the unit of timestamps that are numbers; 0 = the sidecar's, else by their size (mooncake.ReaderOptions).
	Unit time.Duration
	Map  mooncake.Mapping // keys of the trace for fields of its rows
	// Sessions is what the rows of one session mean; zero = the sidecar's word, else detection.
	Sessions mooncake.SessionMode
	Strict   bool // refuse what is otherwise read kindly
	// Lenient replays the trace as if rows that cannot be used were not there. They have no index and no record; they are
	// kept in Quarantine, counted in the report, and bear on the verdict. See mooncake.Quarantine, also for how many.
	Lenient bool
	// Quarantine is the file for these rows; empty = mooncake.RejectedName in Config.Out.
	Quarantine string
	Lookahead  int // rows; 0 = load.DefaultLookahead
	Start, End time.Duration
	MaxRows    int64
	// Loop sends the trace so often, 0 = once; LoopFor as often as it takes until no row is due any more, in replay time. Of the two
	// one may be given. LoopFresh gives each pass block ids of its own.
	Loop      int
	LoopFor   time.Duration
	LoopFresh bool
	Shard     int // of Shards
	Shards    int // 0 = not sharded
}

// Target is the engine.
type Target struct {
	URL string // base URL, with or without /v1
	// Further are the base URLs of further engines of the same model, between which Balance chooses for each request.
	Further []string
	Balance Balance // zero = RoundRobin
	// InstanceHeader is the header of a reply that names the instance behind a router; empty = those of send.InstanceHeaders.
	InstanceHeader string
	Model          string // of every row; empty = each row's own, and where it names none the first that /v1/models names
	Profile        prompt.Profile
	Header         http.Header
	APIKey         string
	TLS            *tls.Config
	HTTP2          bool
	// Connections says which requests a connection is for, one after the other; "" = send.ReuseAny.
	Connections send.Reuse
	// SessionHeader is the header that names a row's session to engines and routers; empty = X-Session-Id.
	SessionHeader string
	// Posts are requests to each engine beside the trace's.
	Posts []Post
	// ReadStamps takes arrival stamps after the read call even where the kernel has better ones, to compare the two.
	ReadStamps bool
	Retries    int
	// CacheBlock is the number of tokens in a block of the engine's prefix cache, for the prediction; 0 = as its metrics say,
	// else learned from its replies.
	CacheBlock int
	// WaitReady is how long an engine is waited for that is not there or not ready yet; 0 = not at all: one look decides.
	WaitReady time.Duration
	// Timeouts; 0 = none.
	ConnectTimeout, FirstTokenTimeout, IdleTimeout, TotalTimeout time.Duration
}

// Prompt is how rows become requests.
type Prompt struct {
	Endpoint prompt.Endpoint // zero = chat
	Form     prompt.Form     // zero = words for chat, token ids for completions where the profile has them
	NoStream bool
	// Dataset is a file of text that prompts are made of, in the place of invented words; see package dataset. Empty = none.
	Dataset string
	// Tokenizer is the model's tokenizer.json, which counts the tokens of texts where the engine does not; empty = none.
	Tokenizer string
	// Images says how pictures beside prompts are made.
	Images prompt.Images
	Seed   uint64
	// Overhead is the number of tokens that the server adds to each prompt of words; 0 = measure it with two requests.
	Overhead int
	TooShort prompt.TooShort
	Extra    json.RawMessage // merged into each body
	// Priorities are what bodies state, by the class of their rows; a class of none has those of its rows.
	Priorities prompt.Priorities
	// Carry says whether the replay's own replies stand where the trace says that earlier replies stood; zero = carry.Auto.
	// CarryBytes bounds what is kept for that; 0 = carry.DefaultBytes.
	Carry      carry.Mode
	CarryBytes int64
	// Output is the number of tokens for rows without output_length; OutputCap bounds all. 0 = none.
	Output, OutputCap int64
}

// Schedule is when rows go out.
type Schedule struct {
	Speedup float64 // 0 = 1
	Spread  load.Spread
	// Arrivals sends rows at a rate, in the order of their timestamps; zero = at their timestamps. Speedup then divides the delays
	// of turns alone. The seed is the prompts'.
	Arrivals load.Arrivals
	// FileOrder ignores timestamps: a closed loop of Concurrency requests in file order, or Arrivals in file order. It is also
	// what happens to a trace without timestamps.
	FileOrder bool
	// OpenLoop sends each turn of a session at its own timestamp, whatever became of the one before.
	OpenLoop bool
	// Concurrency is the number of requests under way at once: the cap of a timed schedule (0 = none), the size of
	// a closed loop (0 = 1).
	Concurrency int
	// PrefillConcurrency is the number of requests that may be without a first token at once; 0 = no cap.
	PrefillConcurrency int
	// ConcurrencyRampUp is the time in which the number of requests that may be under way at once rises from 1 to Concurrency, one by
	// one, at equal distances; 0 = it is that from the beginning. PrefillRampUp is that of PrefillConcurrency.
	ConcurrencyRampUp, PrefillRampUp time.Duration
	// MaxDuration ends the dispatch after so much replay time; what is under way then has Grace (0 = 30 s) to
	// end.
	MaxDuration, Grace time.Duration
	// Warmup is the number of requests sent before the schedule starts. They have the sizes of the trace's first
	// rows and nothing of their prompts, and are kept out of every figure.
	Warmup int
	// WarmupFor is the time for which such requests are sent; 0 = until there have been Warmup. Of the two the first ends the warm-up.
	WarmupFor time.Duration
	// WarmupGrace is the time that those have to end which are under way when the last one has been sent; 0 = as long as they take.
	WarmupGrace time.Duration
	// WarmupConcurrency is the number of warm-up requests under way at once, up to 1,024; 0 = Concurrency.
	WarmupConcurrency int
	// WarmupArrivals sends the warm-up requests at a rate; those that WarmupConcurrency, or without it 1,024, holds up go later. Zero = a
	// closed loop.
	WarmupArrivals load.Arrivals
	// WarmupPrefillConcurrency is the number of warm-up requests that may be without a first token at once; 0 = no cap.
	WarmupPrefillConcurrency int
	// WarmupConcurrencyRampUp and WarmupPrefillRampUp are the times in which the two rise from 1; 0 = from the beginning.
	WarmupConcurrencyRampUp, WarmupPrefillRampUp time.Duration
	// Prepare is how long before its instant a request is begun, all but sending it: its body is planned and it has a
	// connection. At most 1 s; 0 = 2 ms. Without effect in a closed loop, under a cap and with HTTP/2.
	Prepare time.Duration
	// StartAt is the wall-clock instant of the schedule's zero, for shards that start together; zero = at once. A run that is not
	// ready by then is refused, unless it is Fixed.
	StartAt time.Time
	// Fixed leaves the zero at StartAt even if that has passed when the replay is ready: rows that are due by then go at once, late.
	Fixed bool
	// ClockReference is an NTP server, host or host:port, from whose clock the offset of this machine's is measured before and after
	// the run; empty = none. The offset is recorded, and changes nothing of the schedule.
	ClockReference string
}

// Disconnect is a client that gives up: it closes the connection of a share of the requests, which the seed chooses.
type Disconnect struct {
	Share float64       // of the requests, 0 to 1
	After time.Duration // since the last byte of the request was sent; a reply that is complete by then is served
}

// Validate reports everything that is wrong with the configuration, without touching the network or the disk.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Trace.Name == "" {
		bad("trace: none given; name a file, a URL, or - for standard input")
	}
	if c.Resume && c.Out == "" {
		bad("resume: no folder of a run that was broken off is given")
	}
	if c.Target.URL == "" && !c.DryRun {
		bad("url: none given; name the engine's base URL, such as http://127.0.0.1:8000")
	}
	for i, address := range c.Target.URLs() {
		if err := checkURL(address); err != nil {
			errs = append(errs, err)
		}
		if slices.Contains(c.Target.URLs()[:i], address) {
			bad("url %s: it is given twice", mooncake.PublicName(address))
		}
	}
	if b := c.Target.Balance; b != "" && !slices.Contains(Balances(), b) {
		bad("balance %q: want %s, %s, %s or %s", b, RoundRobin, LeastLoaded, BySession, ByPrefix)
	}
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
	} {
		d, isTime := n.value.(time.Duration)
		i, _ := n.value.(int64)
		if isTime && d < 0 || i < 0 {
			bad("%s %v: it is below 0; want 0 or more", n.name, n.value)
		}
	}
	if c.Schedule.Prepare > time.Second {
		bad("prepare %v: want at most 1s", c.Schedule.Prepare)
	}
	if m := c.Prompt.Carry; m != "" && m != carry.Auto && m != carry.Always && m != carry.Never {
		bad("carry replies %q: want %q, %q or %q", m, carry.Auto, carry.Always, carry.Never)
	}
	if c.Prompt.Dataset != "" && c.Prompt.Form == prompt.Tokens {
		bad("dataset: its text cannot be sent as token ids; leave one of the two out")
	}
	if c.Trace.BlockSize > mooncake.MaxBlockSize {
		bad("block size %d: want at most %d tokens", c.Trace.BlockSize, mooncake.MaxBlockSize)
	}
	if !(c.Schedule.Speedup >= 0) || math.IsInf(c.Schedule.Speedup, 0) { // NaN too
		bad("speed-up %v: want a number above 0", c.Schedule.Speedup)
	}
	if err := c.Schedule.Arrivals.Validate(); err != nil {
		errs = append(errs, err)
	}
	if err := c.Schedule.WarmupArrivals.Validate(); err != nil {
		errs = append(errs, fmt.Errorf("warm-up: %w", err))
	}
	for _, p := range c.Target.Posts {
		if err := p.check(); err != nil {
			bad("engine post %s: %w", p, err)
		}
	}
	if c.Schedule.FileOrder && c.Schedule.OpenLoop && !c.Schedule.Arrivals.Any() {
		bad("open loop: a closed loop (--no-fixed-schedule) has no timestamps to send by; give one of the two")
	}
	switch t := c.Trace; {
	case t.Loop > 1 && t.LoopFor > 0:
		bad("loop %d: want a number of passes or a duration", t.Loop)
	case (t.Loop > 1 || t.LoopFor > 0) && t.Name == "-":
		bad("loop: standard input can be read once; name a file")
	case (t.Loop > 1 || t.LoopFor > 0) && (t.Start > 0 || t.End > 0):
		bad("loop: a window has no passes of its own; cut it out of the trace with moonloop transform, and loop that")
	case t.LoopFor > 0 && c.Schedule.Arrivals.AtOnce():
		bad("loop %v: all rows at once never come to the end of a duration; want a number of passes", t.LoopFor)
	}
	switch t := c.Trace; {
	case t.Lenient && t.Strict:
		bad("lenient: strict refuses the trace for what lenient goes on without; give one of --lenient and --strict")
	case t.Lenient && c.Out == "" && t.Quarantine == "" && !c.DryRun:
		bad("lenient: nothing says where the rows go that cannot be used; give --quarantine FILE or --out DIR")
	case !t.Lenient && t.Quarantine != "":
		bad("quarantine: without --lenient the first row that cannot be used ends the replay; give both or neither")
	}
	if n := max(c.Schedule.PrefillConcurrency, c.Schedule.WarmupPrefillConcurrency); n > 0 && c.Prompt.NoStream {
		bad("prefill concurrency %d: whole replies have no first token; let them be streamed", n)
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
			bad("%s %v: nothing says up to how many; give %s N", ramp.name, ramp.over, ramp.of)
		}
	}
	if c.Prompt.Endpoint == prompt.Embeddings {
		if s := c.SLO; s.TTFT+s.TTST+s.ITL+s.TPOT > 0 {
			bad("slo %s: an embedding has no tokens to be first or next; give e2e alone", s)
		}
		if c.Schedule.PrefillConcurrency > 0 {
			bad("prefill concurrency %d: an embedding has no first token; cap requests with concurrency", c.Schedule.PrefillConcurrency)
		}
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
	if c.AbortErrors < 0 {
		bad("abort errors %d: want 0 or more", c.AbortErrors)
	}
	if c.GoodputGoal > 0 && !c.SLO.Any() {
		bad("goodput goal: it needs a service level, such as --slo ttft=500ms")
	}
	if err := c.Telemetry.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// URLs are the base URLs of all engines.
func (t Target) URLs() []string {
	if t.URL == "" {
		return nil
	}
	return append([]string{t.URL}, t.Further...)
}

// checkURL says what is wrong with an engine's base URL, and nothing of what may be secret in it.
func checkURL(address string) error {
	switch u, err := url.Parse(address); {
	case !strings.Contains(address, "://"):
		return fmt.Errorf("url %q: begin it with http:// or https://", address)
	case err != nil:
		return errors.New("url: it cannot be read; want http://host:port or https://host:port") // the error would repeat its secrets
	case u.Port() != "" && !validPort(u.Port()):
		return fmt.Errorf("url: port %s: want 1 to 65535", u.Port())
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return fmt.Errorf("url %q: want http://host:port or https://host:port", mooncake.PublicName(address))
	case u.User != nil:
		return errors.New("url: it holds a user name; pass credentials by --api-key-env or --api-key-file")
	}
	return nil
}

func validPort(port string) bool {
	n, err := strconv.ParseUint(port, 10, 16)
	return err == nil && n > 0
}

// The defaults of a configuration.
const (
	defaultLead = 50 * time.Millisecond
	// defaultPrepare is enough for a burst of 20 requests, some 0.1 ms each, or for a connection within a data centre. Each
	// request that waits has a connection of its own: more would cost caches, the engine's and ours.
	defaultPrepare = 2 * time.Millisecond
	defaultGrace   = 30 * time.Second
	// longest bounds what is asked for in time, so that no sum of instants overflows: nobody waits for so long.
	longest = 50 * 365 * 24 * time.Hour
)

// resolved returns a valid configuration with its defaults in the place of zeros.
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
	c.Target.SessionHeader = cmp.Or(c.Target.SessionHeader, "X-Session-Id")
	s.MaxDuration, s.Grace = min(s.MaxDuration, longest), min(cmp.Or(s.Grace, defaultGrace), longest)
	if s.Prepare = cmp.Or(s.Prepare, defaultPrepare); c.Target.HTTP2 { // headers would go out at once
		s.Prepare = 0
	}
	return c
}

// oneModel returns the model that the configuration sends every row to, or "".
func (c *Config) oneModel() string {
	var extra struct{ Model string }
	_ = json.Unmarshal(c.Prompt.Extra, &extra) // what is wrong with it is said elsewhere
	return cmp.Or(extra.Model, c.Target.Model)
}
