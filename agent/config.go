// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/measure"
	"github.com/moonloop/moonloop/agent/prompt"
	"github.com/moonloop/moonloop/agent/schedule"
	"github.com/moonloop/moonloop/agent/telemetry"
	"github.com/moonloop/moonloop/mooncake"
)

// Config is one replay. Trace.Name and Target.URL are needed; everything else has a working zero value.
type Config struct {
	Trace     Trace
	Target    Target
	Prompt    Prompt
	Schedule  Schedule
	Telemetry telemetry.Config

	// SLO is the service level that a good request meets; GoodputGoal the share of requests, 0 to 1, that
	// must be good for the run to pass. Zero = no goal.
	SLO         measure.SLO
	GoodputGoal float64
	// MaxErrorRate is the share of requests, 0 to 1, that may fail for the run to pass; 0 = any.
	// AbortErrorRate ends the run early when a larger share has failed after max(Concurrency, 10) requests;
	// 0 = never.
	MaxErrorRate, AbortErrorRate float64
	// StrictVerdict makes a degraded run fail like an invalid one.
	StrictVerdict bool

	// Out is the directory for summary.json, summary.csv and requests.jsonl; empty = none.
	Out string
	// RunID names the run in every artefact; empty = a new random one.
	RunID string
	// Tool is the version of the program, for the report; Command the command line, secrets left out.
	Tool    string
	Command []string

	// Progress receives a live view once the run has started. May be nil.
	Progress func(*Live)
	// Warn receives each warning as it arises. May be nil: warnings are in the report all the same.
	Warn func(string)

	// DialContext and Waiter replace the network and the timer, for virtual time. Waiter nil = the kernel's.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)
	Waiter      func(clock.Clock) schedule.Waiter
	// Lead is the time between the last preparation and the schedule's zero; 0 = 50 ms.
	Lead time.Duration
}

// Trace is what is replayed.
type Trace struct {
	Name      string // path, "-" for Stdin, or an http(s) URL
	BlockSize int    // tokens per hash id; 0 = the sidecar's, else 512
	// Unit is the length of one timestamp unit; 0 = the sidecar's, else a millisecond.
	Unit time.Duration
	// Sessions is what the rows of one session mean; zero = the sidecar's word, else detection.
	Sessions   mooncake.SessionMode
	Strict     bool // refuse what is otherwise read kindly
	Lookahead  int  // rows; 0 = load.DefaultLookahead
	Start, End time.Duration
	MaxRows    int64
	Shard      int // of Shards
	Shards     int // 0 = not sharded
}

// Target is the engine.
type Target struct {
	URL     string // base URL, with or without /v1
	Model   string // empty = the first that /v1/models names
	Profile prompt.Profile
	Header  http.Header
	APIKey  string
	TLS     *tls.Config
	HTTP2   bool
	Retries int
	// Timeouts; 0 = none.
	ConnectTimeout, FirstTokenTimeout, IdleTimeout, TotalTimeout time.Duration
}

// Prompt is how rows become requests.
type Prompt struct {
	Endpoint prompt.Endpoint // zero = chat
	Form     prompt.Form     // zero = words for chat, token ids for completions where the profile has them
	NoStream bool
	Seed     uint64
	// Overhead is the number of tokens that the server adds to each prompt; negative = calibrate.
	Overhead int
	TooShort prompt.TooShort
	Extra    json.RawMessage // merged into each body
	// Output is the number of tokens for rows without output_length; OutputCap bounds all. 0 = none.
	Output, OutputCap int64
}

// Schedule is when rows go out.
type Schedule struct {
	Speedup float64 // 0 = 1
	Spread  load.Spread
	// FileOrder ignores timestamps: a closed loop of Concurrency requests in file order. It is also what
	// happens to a trace without timestamps.
	FileOrder bool
	// OpenLoop sends each turn of a session at its own timestamp, whatever became of the one before.
	OpenLoop bool
	// Concurrency is the number of requests under way at once: the cap of a timed schedule (0 = none), the size of
	// a closed loop (0 = 1).
	Concurrency int
	// MaxDuration ends the dispatch after so much replay time; what is under way then has Grace (0 = 30 s) to
	// end.
	MaxDuration, Grace time.Duration
	// Warmup is the number of requests sent before the schedule starts. They have the shapes of the trace's first
	// rows and share no block with it, and are kept out of every figure.
	Warmup int
	// StartAt is the wall-clock instant of the schedule's zero, for shards that start together; zero = at once.
	StartAt time.Time
}

// Validate reports everything that is wrong with the configuration, without touching the network or the disk.
func (c *Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.Trace.Name == "" {
		bad("trace: none given")
	}
	switch u, err := url.Parse(c.Target.URL); {
	case c.Target.URL == "":
		bad("url: none given; name the engine's base URL, such as http://127.0.0.1:8000")
	case err != nil:
		bad("url: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		bad("url %q: want http://host:port or https://host:port", c.Target.URL)
	case u.User != nil:
		bad("url: it holds a user name; pass credentials by --api-key-env or --api-key-file")
	}
	if c.Trace.BlockSize < 0 {
		bad("block size %d: want 1 or more tokens", c.Trace.BlockSize)
	}
	if c.Schedule.Speedup < 0 {
		bad("speed-up %v: want a number above 0", c.Schedule.Speedup)
	}
	for name, v := range map[string]int64{
		"concurrency": int64(c.Schedule.Concurrency), "warm-up requests": int64(c.Schedule.Warmup),
		"max requests": c.Trace.MaxRows, "retries": int64(c.Target.Retries),
		"default output length": c.Prompt.Output, "output cap": c.Prompt.OutputCap,
		"max duration": int64(c.Schedule.MaxDuration), "start": int64(c.Trace.Start), "end": int64(c.Trace.End),
		"connect timeout": int64(c.Target.ConnectTimeout), "first-token timeout": int64(c.Target.FirstTokenTimeout),
		"idle timeout": int64(c.Target.IdleTimeout), "total timeout": int64(c.Target.TotalTimeout),
	} {
		if v < 0 {
			bad("%s: it is below 0", name)
		}
	}
	for name, v := range map[string]float64{
		"goodput goal": c.GoodputGoal, "max error rate": c.MaxErrorRate, "abort error rate": c.AbortErrorRate,
	} {
		if v < 0 || v > 1 {
			bad("%s %v: want a share from 0 to 1", name, v)
		}
	}
	if c.GoodputGoal > 0 && !c.SLO.Any() {
		bad("goodput goal: it needs a service level, such as --slo ttft=500ms")
	}
	if err := c.Telemetry.Validate(); err != nil {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
