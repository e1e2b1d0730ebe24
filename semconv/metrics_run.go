// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

// Metrics of a run as a whole: its position, what was requested, and whether it can be trusted. No attributes except those stated.
var (
	// RunInfo is a gauge that is always 1. Attributes: [RunTrace], [RunDigest], [RunSpeedup], [RunEngine], [GenAIRequestModel].
	RunInfo = Metric{
		Name: "mooncake.run.info", Unit: "{run}",
		Description: "What this run replays, and against which engine",
	}
	// RunProgress is a gauge, 0 to 1; absent while the length of the trace is unknown.
	RunProgress = Metric{
		Name: "mooncake.run.progress", Unit: "1",
		Description: "Part of the trace's time that is over",
	}
	// RunRemaining is a gauge; absent while the length of the trace is unknown, 0 when no further row will be due.
	RunRemaining = Metric{
		Name: "mooncake.run.remaining", Unit: "s",
		Description: "Time until the last row is due",
	}
	// RowsDue is a counter.
	RowsDue = Metric{
		Name: "mooncake.rows.due", Unit: "{row}",
		Description: "Rows whose scheduled time has come",
	}
	// RowsLeft is a gauge; absent while the length of the trace is unknown.
	RowsLeft = Metric{
		Name: "mooncake.rows.left", Unit: "{row}",
		Description: "Rows of the trace that are not done",
	}
	// RequestsSent is a counter: a request counts from the moment at which it is sent.
	RequestsSent = Metric{
		Name: "mooncake.requests.sent", Unit: "{request}",
		Description: "Requests that were sent",
	}
	// RequestsGood is a counter, only in runs with a service level.
	RequestsGood = Metric{
		Name: "mooncake.requests.good", Unit: "{request}",
		Description: "Served requests within the service level of the run",
	}
	// RequestsJudged is a counter, only in runs with a service level: [RequestsGood] as a share of it is the report's.
	RequestsJudged = Metric{
		Name: "mooncake.requests.judged", Unit: "{request}",
		Description: "Requests of which it is known whether they meet the service level of the run: served, failed, or stopped when they had missed it",
	}
	// ChunksReceived is a counter: a chunk counts from the moment at which it arrives.
	ChunksReceived = Metric{
		Name: "mooncake.chunks.received", Unit: "{chunk}",
		Description: "Output chunks that arrived; most engines send a chunk for each token",
	}
	// CacheUnpredicted is a counter over the requests of [CacheReported]. More than 0 shows that the cache was warm before the run.
	CacheUnpredicted = Metric{
		Name: "mooncake.cache.unpredicted_tokens", Unit: "{token}",
		Description: "Prompt tokens that the server reports as cached beyond what an infinite cache would have had of this run",
	}
	// RunVerdict is a gauge: 1 for the class of the verdict, 0 for the others. Attributes: [VerdictClass]. It exists from the end of the run on.
	RunVerdict = Metric{
		Name: "mooncake.run.verdict", Unit: "{verdict}",
		Description: "Verdict on the fidelity of the run",
	}
	// RunVerdictReason is a gauge: the value of each metric of the verdict whose class is not valid. Attributes: [VerdictMetric],
	// [VerdictClass]. It exists from the end of the run on.
	RunVerdictReason = Metric{
		Name: "mooncake.run.verdict.reason", Unit: "{value}",
		Description: "Value of a metric that made the verdict on the run worse, in that metric's own unit",
	}
)

// Attributes of those metrics.
const (
	RunTrace      = "mooncake.run.trace"      // string: name of the trace, without directories and secrets
	RunDigest     = "mooncake.run.digest"     // string: seq_digest from the trace's metadata file, 12 hex digits; absent = unknown
	RunSpeedup    = "mooncake.run.speedup"    // double
	RunEngine     = "mooncake.run.engine"     // string: host and port
	RunState      = "mooncake.run.state"      // string: state of a run that a service has, such as running or finished
	VerdictClass  = "mooncake.verdict.class"  // string: valid, undecided, degraded or invalid
	VerdictMetric = "mooncake.verdict.metric" // string: as in package judge
)

// Metrics of moonloop agent, the service, in addition to the metrics of its runs.
var (
	// ServiceRuns is a gauge. Attributes: [RunState].
	ServiceRuns = Metric{
		Name: "mooncake.agent.runs", Unit: "{run}",
		Description: "Runs that the service has, by state",
	}
	// ServiceRefused is a counter. Attributes: [HTTPResponseStatusCode].
	ServiceRefused = Metric{
		Name: "mooncake.agent.refused", Unit: "{request}",
		Description: "Requests that the service refused, by status",
	}
)
