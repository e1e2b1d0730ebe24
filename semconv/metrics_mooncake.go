// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

// Metrics of a replay. Attributes, unless stated otherwise: those of the GenAI metrics.
var (
	// LatencyTTFT is a histogram: one value per streamed request that was served and sent once.
	LatencyTTFT = Metric{
		Name: "mooncake.latency.ttft", Unit: "s",
		Description: "Time from the intended instant to the first token", Boundaries: latencyBuckets,
	}
	// LatencyRequest is a histogram: one value per request that was served and sent once.
	LatencyRequest = Metric{
		Name: "mooncake.latency.request", Unit: "s",
		Description: "Time from the intended instant to the last token", Boundaries: latencyBuckets,
	}
	// ScheduleLatenessSeconds is a histogram: one value per request that a timestamp or delay scheduled.
	ScheduleLatenessSeconds = Metric{
		Name: "mooncake.schedule.lateness", Unit: "s",
		Description: "Dispatch minus intended instant, the concurrency cap's wait not included", Boundaries: latenessBuckets,
	}
	// QueueDuration is a histogram: one value per dispatched request.
	QueueDuration = Metric{
		Name: "mooncake.queue.duration", Unit: "s",
		Description: "Wait for the concurrency cap", Boundaries: latencyBuckets,
	}
	// Requests is a counter over the rows that are done. Attributes also: [Outcome], [ErrorType], [OutcomeReason].
	Requests = Metric{
		Name: "mooncake.requests", Unit: "{request}",
		Description: "Rows of the trace by how they ended",
	}
	// RequestsInFlight is an up-down counter, without attributes.
	RequestsInFlight = Metric{
		Name: "mooncake.requests.in_flight", Unit: "{request}",
		Description: "Requests under way, those that wait for the concurrency cap included",
	}
	// CachePredicted is a counter over the served requests that [CacheReported] counts too, so that the ratio of the two
	// is the share of the ideal that the server's cache realised.
	CachePredicted = Metric{
		Name: "mooncake.cache.predicted_tokens", Unit: "{token}",
		Description: "Prompt tokens that an infinite block cache would have served",
	}
	// CacheReported is a counter over the served requests for which the server reported this number and a prediction was made.
	CacheReported = Metric{
		Name: "mooncake.cache.reported_tokens", Unit: "{token}",
		Description: "Prompt tokens that the server reports to have served from its cache",
	}
	// PromptTokenError is a histogram: one value per served request whose whole prompt was made from the length of its row, and whose
	// prompt tokens the server counted. (If a row has only the new turn of a session, its length does not cover the earlier turns.) Values
	// are absolute, since a histogram's values must not be negative. Attributes also: [PromptErrorSign].
	PromptTokenError = Metric{
		Name: "mooncake.prompt.token_error", Unit: "{token}",
		Description: "Prompt tokens that the server counted minus the row's input length, absolute",
		Boundaries:  []float64{0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 4096},
	}
	// CoalescedChunks is a counter.
	CoalescedChunks = Metric{
		Name: "mooncake.chunks.coalesced", Unit: "{chunk}",
		Description: "Output chunks that came with their predecessor in one read although they had been sent apart",
	}
)

// Metrics of the telemetry itself. No attributes except those stated.
var (
	// TelemetrySpansEnded is a counter. What is neither accepted nor lost is still in the queue.
	TelemetrySpansEnded = Metric{
		Name: "mooncake.telemetry.spans.ended", Unit: "{span}",
		Description: "Sampled spans that ended",
	}
	// TelemetrySpans is a counter. Attributes: [TelemetryResult].
	TelemetrySpans = Metric{
		Name: "mooncake.telemetry.spans", Unit: "{span}",
		Description: "Spans that the receiver accepted, or that were lost, by reason",
	}
	// TelemetryEventsDropped is a counter.
	TelemetryEventsDropped = Metric{
		Name: "mooncake.telemetry.events.dropped", Unit: "{event}",
		Description: "Token events that spans lack because of a limit",
	}
)

// Metrics of the process and its machine, for judging the run's own fidelity. No attributes.
var (
	// ProcessCPUTime is the conventions' counter, user and system time in one.
	ProcessCPUTime = Metric{
		Name: "process.cpu.time", Unit: "s",
		Description: "CPU time that this process used since the run began",
	}
	// ProcessMemoryPeak is a gauge.
	ProcessMemoryPeak = Metric{
		Name: "mooncake.process.memory.peak", Unit: "By",
		Description: "Peak resident memory of this process",
	}
	// ProcessGoroutines is the conventions' up-down counter.
	ProcessGoroutines = Metric{
		Name: "go.goroutine.count", Unit: "{goroutine}",
		Description: "Count of live goroutines",
	}
	// ProcessHiccups is a counter.
	ProcessHiccups = Metric{
		Name: "mooncake.process.hiccups", Unit: "{hiccup}",
		Description: "Times that the machine or this process stood still",
	}
	// ProcessHiccupTime is a counter.
	ProcessHiccupTime = Metric{
		Name: "mooncake.process.hiccup.time", Unit: "s",
		Description: "Time for which the machine or this process stood still",
	}
	// ProcessHiccupMax is a gauge.
	ProcessHiccupMax = Metric{
		Name: "mooncake.process.hiccup.max", Unit: "s",
		Description: "Longest time for which the machine or this process stood still",
	}
	// ProcessGCPauses is a counter.
	ProcessGCPauses = Metric{
		Name: "mooncake.process.gc.pauses", Unit: "{pause}",
		Description: "Pauses in which the garbage collector stopped the process",
	}
	// ProcessGCPauseMax is a gauge.
	ProcessGCPauseMax = Metric{
		Name: "mooncake.process.gc.pause.max", Unit: "s",
		Description: "Longest pause of the garbage collector, rounded up to its histogram's bucket",
	}
	// ProcessThrottledTime is a counter.
	ProcessThrottledTime = Metric{
		Name: "mooncake.process.throttled.time", Unit: "s",
		Description: "Time for which the CPU quota of the control group held this process back",
	}
)

var (
	// latencyBuckets reach further than the conventions' on both sides: a simulated engine answers within a millisecond,
	// an overloaded one after minutes.
	latencyBuckets = []float64{
		0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500,
	}
	// latenessBuckets resolve a kernel timer.
	latenessBuckets = []float64{
		0.00002, 0.00005, 0.0001, 0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10,
	}
)
