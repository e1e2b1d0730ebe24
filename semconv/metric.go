// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package semconv

// Metric is a metric's identity. Unit is in UCUM. Boundaries are the upper bounds, inclusive, of the explicit buckets of a histogram, in
// the metric's unit, in ascending order; nil for other kinds. They must not be changed. Latest is the name in the revision after v1.41 of
// the GenAI conventions, if it differs.
type Metric struct {
	Name        string
	Latest      string
	Unit        string
	Description string
	Boundaries  []float64
}

// Attributes of metrics only.
const (
	// PromptErrorSign is a string on [PromptTokenError]: [SignEqual], [SignMore] or [SignFewer].
	PromptErrorSign = "mooncake.prompt.token_error.sign"
	// TelemetryResult is a string on [TelemetrySpans]: [ResultAccepted], or why spans were lost.
	TelemetryResult = "mooncake.telemetry.result"
)

// Values of [PromptErrorSign].
const (
	SignEqual = "equal" // the server counted what the row asks for
	SignMore  = "more"  // the server counted more
	SignFewer = "fewer" // the server counted fewer
)

// Values of [TelemetryResult], and the reasons for lost spans in reports.
const (
	ResultAccepted = "accepted"
	LostQueueFull  = "queue_full"    // the exporter fell behind by more than the queue's bytes
	LostExport     = "export_failed" // refused by the receiver, or not accepted before the end
	LostTooLarge   = "too_large"     // the receiver accepts no message of this size, not even one span
	LostRejected   = "rejected"      // the receiver accepted the message without these spans (partial success)
	LostShutdown   = "shutdown"      // not sent when the time for shutting down was over, or the span ended after that
)
