// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package agent

// This file has what a shard of a replay knows about the others, with which it does not communicate: the name of the run, the common
// schedule, and the offset of its clock from a common reference.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"path"
	"time"

	"github.com/beevik/ntp"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/load"
	"github.com/moonloop/moonloop/agent/report"
	"github.com/moonloop/moonloop/mooncake"
)

// fairShare is the multiple of the mean share above which a shard warns.
const fairShare = 1.2

// sharedRunID returns the run id of shards that start together, so that their metrics add up; "" for other runs.
func (c *Config) sharedRunID() string {
	if c.Trace.Shards == 0 || c.Schedule.StartAt.IsZero() {
		return ""
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%d\n%d\n%d\n%v", path.Base(mooncake.PublicName(c.Trace.Name)), c.Trace.Shards, c.Schedule.StartAt.UnixNano(), c.Prompt.Seed, c.Schedule.Speedup))
	return hex.EncodeToString(sum[:8])
}

// describeShard describes a shard's part of the run; nil without shards.
func (e ending) describeShard(ctx context.Context, parts load.Parts) *report.Shard {
	p := e.plan.shard
	if p == nil {
		return nil
	}
	s := *p
	s.Rows, s.Tokens, s.AllRows, s.AllTokens = parts.OwnRows, parts.OwnTokens, parts.Rows, parts.Tokens
	s.LargestRows, s.LargestTokens, s.Zero = parts.LargestRows, parts.LargestTokens, clock.Millis(e.zero)
	if parts.Plan != 0 {
		s.Plan = fmt.Sprintf("%016x", parts.Plan)
	}
	more := max(float64(s.Rows)/float64(max(1, s.AllRows)), float64(s.Tokens)/float64(max(1, s.AllTokens))) * float64(s.Of)
	if more > fairShare {
		e.said.warn("this shard has %.2f times as many rows or tokens as the mean of all shards: %d of its %d rows belong to one session or graph, or begin with the same block, and are not split", more, s.LargestRows, s.Rows)
	}
	if s.Clock != nil {
		c := *s.Clock
		if end, uncertain, err := askReference(context.WithoutCancel(ctx), c.Reference); err != nil {
			e.said.warn("the clock was not compared again at the end: %v", err)
		} else {
			c.End, c.Uncertain = clock.Millis(end), max(c.Uncertain, clock.Millis(uncertain))
		}
		s.Clock = &c
	}
	return &s
}

// noRows returns the error for a run that sent nothing.
func noRows(s *report.Shard) error {
	if s != nil && s.AllRows > 0 {
		return fmt.Errorf("shard %d/%d has none of the %d rows: they are in fewer groups (sessions, graphs, first blocks) than there are shards; use fewer shards", s.Index, s.Of, s.AllRows)
	}
	return errors.New("no row is left to replay: window, limit and shard leave all of them out")
}

// compareClock queries the reference for the first time; nil if there is none.
func compareClock(ctx context.Context, reference string, said *notices) (*report.Clock, error) {
	if reference == "" {
		return nil, nil //nolint:nilnil // nobody asked
	}
	offset, uncertain, err := askReference(ctx, reference)
	if err != nil {
		return nil, err
	}
	said.note("clock: that of %[2]s is ahead of this machine's by %[1]v, give or take %[3]v", offset.Round(time.Microsecond), reference, uncertain.Round(time.Microsecond))
	ms := clock.Millis(offset)
	return &report.Clock{Reference: reference, Start: ms, End: ms, Uncertain: clock.Millis(uncertain)}, nil
}

const (
	clockQuestions = 8 // the one with the shortest round trip counts
	clockPatience  = time.Second
)

// askReference asks an NTP server how far its clock is ahead of this machine's, and how uncertain that is (half of the round trip).
func askReference(ctx context.Context, address string) (offset, uncertain time.Duration, err error) {
	found := false
	for range clockQuestions {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		answer, failed := ntp.QueryWithOptions(address, ntp.QueryOptions{Timeout: clockPatience})
		if failed == nil {
			failed = answer.Validate()
		}
		if failed != nil {
			err = failed
			continue
		}
		if half := answer.RTT / 2; !found || half < uncertain {
			offset, uncertain, found = answer.ClockOffset, half, true
		}
	}
	if !found {
		return 0, 0, fmt.Errorf("clock reference %s: %w; name an NTP server that this machine can reach, such as pool.ntp.org, or another machine that runs one", address, err)
	}
	return offset, uncertain, nil
}
