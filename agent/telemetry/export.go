// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package telemetry

import (
	"context"
	"regexp"
	"slices"
	"strconv"
	"strings"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/moonloop/moonloop/agent/send"
	"github.com/moonloop/moonloop/semconv"
)

// result is what became of the spans of one export.
type result struct {
	accepted int64
	lost     map[string]int64
	err      error // the first of those that cost spans

	kept  []sdktrace.ReadOnlySpan // to be sent again
	why   trouble                 // why they are kept
	cause error                   // in the exporter's words
}

func (r *result) lose(why string, n int64) {
	if n == 0 {
		return
	}
	if r.lost == nil {
		r.lost = make(map[string]int64)
	}
	r.lost[why] += n
}

// export sends spans and says what became of each. A batch that the receiver finds too large is halved until it fits. What
// fails in a way that may pass is kept.
func (q *queue) export(ctx context.Context, spans []sdktrace.ReadOnlySpan) (r result) {
	n := int64(len(spans))
	one, cancel := context.WithTimeout(ctx, q.limits.timeout)
	err := q.exporter.ExportSpans(one, spans)
	cancel()
	if err == nil {
		r.accepted = n
		return r
	}
	r.err = err
	rejected, partly := partialSuccess(err)
	switch why := troubleOf(err); {
	case partly:
		rejected = min(rejected, n)
		r.accepted = n - rejected
		r.lose(semconv.LostRejected, rejected)
	case tooLarge(err) && n == 1:
		r.lose(semconv.LostTooLarge, n)
	case tooLarge(err):
		r = q.export(ctx, spans[:n/2])
		if r.kept != nil {
			r.kept = append(slices.Clip(r.kept), spans[n/2:]...)
			return r
		}
		r.add(q.export(ctx, spans[n/2:]))
	case why != lasting:
		r.err, r.kept, r.why, r.cause = nil, spans, why, err
	default:
		r.lose(semconv.LostExport, n)
	}
	return r
}

// add adds what became of further spans.
func (r *result) add(more result) {
	r.accepted += more.accepted
	for why, n := range more.lost {
		r.lose(why, n)
	}
	if r.err == nil {
		r.err = more.err
	}
	r.kept, r.why, r.cause = more.kept, more.why, more.cause
}

// rejectedSpans matches the OTLP exporters' error for a message that the receiver took in part. Its type is internal
// to them, so the text is all there is.
var rejectedSpans = regexp.MustCompile(`OTLP partial success: .*\((\d+) spans rejected\)`)

// partialSuccess returns how many spans the receiver rejected of a message that it took; 0 is a mere warning.
func partialSuccess(err error) (rejected int64, ok bool) {
	m := rejectedSpans.FindStringSubmatch(strings.ReplaceAll(err.Error(), "\n", " "))
	if m == nil {
		return 0, false
	}
	rejected, parseErr := strconv.ParseInt(m[1], 10, 64)
	return rejected, parseErr == nil
}

// tooLarge reports whether an export failed because of the size of its message: gRPC's ResourceExhausted, HTTP 413 (the
// Collector answers 400) and the exporters' own bound all say so in words only, as ResourceExhausted alone may mean a
// quota.
func tooLarge(err error) bool {
	text := strings.ToLower(err.Error())
	for _, words := range []string{
		"message larger than max", "request entity too large", "request body too large", "request message too large",
	} {
		if strings.Contains(text, words) {
			return true
		}
	}
	return false
}

// maxErrorText bounds the error text of a report: a receiver may answer with a whole page.
const maxErrorText = 512

// errorText is what a report says of an error: bounded, without the values of headers, and with a word on what to do where
// the cause is one of certificates and keys.
func errorText(err error) string {
	text := send.Hidden(err.Error(), otlpSecrets())
	return bounded(text) + remedy(text)
}

// bounded cuts a text that is too long for a line.
func bounded(text string) string {
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText], "") + "…"
	}
	return text
}
