// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// newRetrier wraps a client in go-retryablehttp, whose defaults are for API calls: four retries, a line on stderr for
// each request, and at each failure every idle connection closed, so that the next burst would pay for TCP and TLS
// again. The round tripper below hides the method for the last.
func newRetrier(c *http.Client, retries int, wait, longest time.Duration) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: c, RetryMax: retries, RetryWaitMin: wait, RetryWaitMax: longest,
		CheckRetry: retryable, Backoff: backoff, ErrorHandler: retryablehttp.PassthroughErrorHandler,
		RequestLogHook: func(_ retryablehttp.Logger, r *http.Request, n int) {
			flightOf(r.Context()).attempt(n)
		},
	}
}

// onlyRoundTrip is a transport without its other methods, and one that sends a request again when the kept connection
// turns out to be dead. net/http does that only while the request's head is written: it takes a failure to write the body
// for a failure to read it.
type onlyRoundTrip struct{ t *http.Transport }

// maxReplays bounds how many dead connections one attempt tries.
const maxReplays = 16

// RoundTrip implements http.RoundTripper.
func (o onlyRoundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := o.t.RoundTrip(r)
	f := flightOf(r.Context())
	for n := 0; err != nil && n < maxReplays && f.stale() && r.Context().Err() == nil; n++ {
		again := r.WithContext(r.Context())
		if again.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
		resp, err = o.t.RoundTrip(again)
	}
	return resp, err
}

// retryable decides what is sent again: what cannot have reached the model. It never returns an error: that would stand
// in for the real one.
func retryable(ctx context.Context, resp *http.Response, err error) (bool, error) {
	if ctx.Err() != nil {
		return false, nil
	}
	f := flightOf(ctx)
	again := false
	switch {
	case err != nil:
		again = !f.connected() && !hopeless(err)
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable:
		again = true
	}
	if again {
		f.guard.enter(stagePause)
	}
	return again, nil
}

// backoff returns Retry-After where the server sent one, else a wait that doubles; both up to longest.
func backoff(first, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	if resp != nil {
		if d, ok := retryAfter(resp.Header.Get("Retry-After"), time.Now()); ok {
			return min(d, longest)
		}
	}
	for ; attempt > 0 && first < longest; attempt-- {
		first *= 2
	}
	return min(first, longest)
}

// retryAfter reads the header's two forms: seconds and an HTTP date (RFC 9110, section 10.2.3).
func retryAfter(v string, now time.Time) (time.Duration, bool) {
	if s, err := strconv.ParseUint(v, 10, 31); err == nil {
		return time.Duration(s) * time.Second, true
	}
	at, err := http.ParseTime(v)
	if err != nil {
		return 0, false
	}
	return max(0, at.Sub(now)), true
}
