// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package generate

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/moonloop/moonloop/mooncake"
)

// Config describes a generated trace. [Default] has values to start from.
type Config struct {
	Seed uint64 `json:"seed"`

	// Rows and Duration end the trace: after this many rows, or at this trace time, whichever comes first. 0 = no limit; one of them must
	// be set.
	Rows     int64         `json:"rows,omitempty"`
	Duration time.Duration `json:"duration_ns,omitempty"`

	// Rate is the number of rows per second once conversations end as often as they begin; until then, for about the
	// length of a conversation, it is lower. Conversations arrive as a Poisson process of Rate / Turns per second.
	Rate float64 `json:"rate"`
	// Turns is the mean number of turns of a conversation, 1 or more.
	Turns float64 `json:"turns"`

	// SystemPromptTokens is the length of the system prompt, with which every prompt begins.
	SystemPromptTokens int64 `json:"system_prompt_tokens"`
	// UserTokens is the length of a user's message, OutputTokens of a reply.
	UserTokens   LogNormal `json:"user_tokens"`
	OutputTokens LogNormal `json:"output_tokens"`
	// MaxInput ends a conversation whose next prompt would be longer, in tokens; a first prompt is cut to it. 0 = no limit.
	MaxInput int64 `json:"max_input,omitempty"`

	// Think is the time between the end of a reply and the next turn, in seconds. TokenTime is how long one token of a
	// reply takes; a reply ends when all of its tokens have taken this time.
	Think     LogNormal     `json:"think_seconds"`
	TokenTime time.Duration `json:"token_time_ns,omitempty"`

	// Grid rounds timestamps down to its multiples, like a coarse clock; 0 = whole milliseconds.
	Grid time.Duration `json:"grid_ns,omitempty"`
	// SessionIDs writes session_id on the rows.
	SessionIDs bool `json:"session_ids,omitempty"`
	// BlockSize is the number of tokens per hash id; 0 = [mooncake.BlockSize].
	BlockSize int `json:"block_size"`
}

// LogNormal is a log-normal distribution: half of the values are below Median, and the logarithm has the
// standard deviation Sigma. Values above Max, unless it is 0, become Max.
type LogNormal struct {
	Median float64 `json:"median"`
	Sigma  float64 `json:"sigma"`
	Max    float64 `json:"max,omitempty"`
}

// Default returns a chat service: conversations of three turns under one system prompt, one row per second.
func Default() Config {
	return Config{
		Seed: 1, Rows: 1000, Rate: 1, Turns: 3,
		SystemPromptTokens: 1100,
		UserTokens:         LogNormal{Median: 400, Sigma: 1.4, Max: 64000},
		OutputTokens:       LogNormal{Median: 250, Sigma: 0.9, Max: 2000},
		MaxInput:           128000,
		Think:              LogNormal{Median: 30, Sigma: 0.8, Max: 600},
		TokenTime:          20 * time.Millisecond,
		BlockSize:          mooncake.BlockSize,
	}
}

const (
	maxTokens  = 1 << 30
	maxSeconds = 366 * 24 * 3600
)

// Validate returns an error for every value out of range.
func (c *Config) Validate() error {
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(c.Rows > 0 || c.Duration > 0, "rows or duration must be set: a trace has to end")
	require(c.Rows >= 0, "rows %d: must be 0 or more", c.Rows)
	require(c.Duration >= 0 && c.Duration <= maxSeconds*time.Second, "duration %s: must be between 0 and a year", c.Duration)
	require(c.Rate >= 1e-6 && c.Rate <= 1e6, "rate %g: must be between 0.000001 and a million rows per second", c.Rate)
	require(c.Turns >= 1 && c.Turns <= 1e6, "turns %g: must be between 1 and a million", c.Turns)
	require(c.SystemPromptTokens >= 0 && c.SystemPromptTokens <= maxTokens, "system prompt of %d tokens: must be between 0 and 2^30", c.SystemPromptTokens)
	require(c.MaxInput == 0 || c.MaxInput > c.SystemPromptTokens && c.MaxInput <= maxTokens,
		"longest input of %d tokens: must be above the system prompt and at most 2^30", c.MaxInput)
	require(c.TokenTime >= 0 && c.TokenTime <= time.Hour, "token time %s: must be between 0 and an hour", c.TokenTime)
	require(c.Grid >= 0 && c.Grid%time.Millisecond == 0, "grid %s: must be whole milliseconds", c.Grid)
	require(c.BlockSize >= 0 && c.BlockSize <= 1<<20, "block size %d: must be between 1 and 2^20 tokens", c.BlockSize)
	for _, d := range []struct {
		name     string
		d        LogNormal
		min, max float64
	}{
		{"user tokens", c.UserTokens, 1, maxTokens}, {"output tokens", c.OutputTokens, 1, maxTokens}, {"think time", c.Think, 0, maxSeconds},
	} {
		require(d.d.Median >= d.min && d.d.Median <= d.max, "%s: median %g must be between %g and %g", d.name, d.d.Median, d.min, d.max)
		require(d.d.Sigma >= 0 && d.d.Sigma <= 10, "%s: sigma %g must be between 0 and 10", d.name, d.d.Sigma)
		require(d.d.Max >= 0 && !math.IsInf(d.d.Max, 0), "%s: maximum %g must be 0 (none) or above", d.name, d.d.Max)
	}
	return errors.Join(errs...)
}
