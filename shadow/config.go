// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package shadow

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/moonloop/moonloop/agent"
)

// The defaults of [Config], and its limits.
const (
	DefaultDelay    = 5 * time.Minute
	DefaultHistory  = 15 * time.Minute
	DefaultMaxLag   = 5 * time.Second
	DefaultMaxRate  = 100
	DefaultKeep     = 24 * time.Hour
	DefaultTwinOver = 10 * time.Minute

	// Lead is the time from the compilation of a window until its first row is due.
	Lead = 10 * time.Second
	// MinWindow is the shortest window.
	MinWindow = time.Second

	settle = time.Minute   // from the last due row of a window until the window is reported, even if rows are in flight
	renew  = 6 * time.Hour // after which a new replay begins
)

// Why a row of production is not replayed:
const (
	DropLate        = "late"        // its record came after its window had been compiled
	DropRate        = "rate"        // above Config.MaxRate
	DropLag         = "lag"         // it would have been sent more than Config.MaxLag late
	DropInterrupted = "interrupted" // it was in flight when the shadow, or a replay of it, was killed; it may have reached the engine
	DropNotRunning  = "not_running" // it was due while no shadow ran
)

// Config configures a shadow. Journals, Dir and Replay.Target.URL are required. Durations and rates of 0 mean the
// defaults.
type Config struct {
	Journals string // folder of the journals, which may grow, rotate and be removed
	Dir      string // folder of the shadow, which it uses alone
	// Delay is how long after production a row is sent. Requests that took production longer than Delay − Window − Lead are late.
	Delay time.Duration
	// Window is the time that is compiled together, and that a report covers; 0 = a minute.
	Window time.Duration
	// History is how far back earlier prompts are remembered, to find shared beginnings.
	History time.Duration
	// MaxLag is the maximum lateness with which a row is passed to the replay.
	MaxLag time.Duration
	// MaxRate is the maximum number of rows in a second of production.
	MaxRate int
	// Keep is how long results of replays are kept.
	Keep time.Duration
	// TwinOver is the time over which the replay is compared with production; Tolerances are those of the comparison.
	TwinOver   time.Duration
	Tolerances map[string]float64
	// Replay configures the replay. This package sets Trace, Out and Schedule.StartAt.
	Replay agent.Config

	// Report receives the report of each window. Warn receives errors that do not end the shadow; it may be called by several goroutines at
	// once. Both may be nil.
	Report func(*Report)
	Warn   func(string)
}

// complete sets the defaults, and returns all errors.
func (c *Config) complete() error {
	c.Delay, c.Window, c.History = cmp.Or(c.Delay, DefaultDelay), cmp.Or(c.Window, time.Minute), cmp.Or(c.History, DefaultHistory)
	c.MaxLag, c.MaxRate = cmp.Or(c.MaxLag, DefaultMaxLag), cmp.Or(c.MaxRate, DefaultMaxRate)
	c.Keep, c.TwinOver = cmp.Or(c.Keep, DefaultKeep), cmp.Or(c.TwinOver, DefaultTwinOver)
	if c.Warn == nil {
		c.Warn = func(string) {}
	}
	if c.Report == nil {
		c.Report = func(*Report) {}
	}
	switch {
	case c.Journals == "" || c.Dir == "":
		return errors.New("a shadow needs the folder of the journals, and a folder of its own")
	case c.Window < MinWindow:
		return fmt.Errorf("window %v: want %v or more", c.Window, MinWindow)
	case c.Delay < c.Window+2*Lead:
		return fmt.Errorf("delay %v: want at least %v: a window of %v is compiled after its end, %v before its first row is due", c.Delay, c.Window+2*Lead, c.Window, Lead)
	case c.History < 0 || c.MaxLag < 0 || c.MaxRate < 0 || c.Keep < 0 || c.TwinOver < 0:
		return errors.New("history, lag, rate and the times to keep and to compare must not be below 0; 0 means the default")
	}
	return nil
}

// hold returns the time from the end of a window until it is compiled.
func (c *Config) hold() time.Duration { return c.Delay - c.Window - Lead }

// windowOf returns the window of a time, in ns since the Unix epoch.
func (c *Config) windowOf(ns int64) int64 { return ns / int64(c.Window) }

// begin returns when a window begins.
func (c *Config) begin(window int64) time.Time { return time.Unix(0, window*int64(c.Window)) }

// windows returns how many windows a duration has, rounded up.
func (c *Config) windows(d time.Duration) int64 { return int64((d + c.Window - 1) / c.Window) }
