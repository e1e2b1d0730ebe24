// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package simulator

import (
	"fmt"
	"sync/atomic"
	"time"
)

// Stats are totals since the start, and what is in flight. Requests are those to the generation endpoints.
type Stats struct {
	Elapsed time.Duration // since Engine.Start

	Requests int64             // ended
	Outcomes map[Outcome]int64 // adds up to Requests

	PromptTokens, CachedTokens, OutputTokens int64 // of requests that were admitted

	Running, Waiting int64

	RecordsDropped int64 // dropped for lack of space
	RecordsLost    int64 // could not be written to Recording.To
}

// String returns one line for people.
func (s Stats) String() string {
	hit := 0.0
	if s.PromptTokens > 0 {
		hit = float64(s.CachedTokens) / float64(s.PromptTokens)
	}
	return fmt.Sprintf("%d requests in %s (%d finished, %d rejected, %d client gone, %d faults, %d closed), %d prompt tokens (%.1f %% cached), %d output tokens",
		s.Requests, s.Elapsed.Round(time.Millisecond), s.Outcomes[Finished], s.Outcomes[Rejected], s.Outcomes[ClientGone], s.Outcomes[Faulted], s.Outcomes[Closed],
		s.PromptTokens, 100*hit, s.OutputTokens)
}

// Stats returns the totals so far.
func (e *Engine) Stats() Stats {
	s := Stats{Elapsed: e.now(), Outcomes: make(map[Outcome]int64, len(outcomes))}
	for i, o := range outcomes {
		s.Outcomes[o] = e.count.outcomes[i].Load()
		s.Requests += s.Outcomes[o]
	}
	s.PromptTokens, s.CachedTokens, s.OutputTokens = e.count.prompt.Load(), e.count.cached.Load(), e.count.output.Load()
	s.Running, s.Waiting = e.queue.running(), e.queue.waiting()
	s.RecordsDropped, s.RecordsLost = e.log.counts()
	return s
}

var outcomes = [...]Outcome{Finished, Rejected, ClientGone, Faulted, Closed}

// counters are the totals behind [Stats] and the metrics.
type counters struct {
	outcomes               [len(outcomes)]atomic.Int64
	unauthorized           atomic.Int64
	prompt, cached, output atomic.Int64
}

func (c *counters) add(r *Record) {
	for i, o := range outcomes {
		if o == r.Outcome {
			c.outcomes[i].Add(1)
		}
	}
	if r.Admitted != Never {
		c.prompt.Add(int64(r.PromptTokens))
		c.cached.Add(int64(r.CachedTokens))
		c.output.Add(int64(r.OutputTokens))
	}
}
