// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

// newRetrier wraps a client in go-retryablehttp, whose defaults are for API calls: four retries, a line on stderr for each request, and, at
// each failure, closing every idle connection, so that the next burst would need TCP and TLS again. The round tripper below hides the
// method that would close them.
func newRetrier(c *http.Client, retries int, wait, longest time.Duration) *retryablehttp.Client {
	return &retryablehttp.Client{
		HTTPClient: c, RetryMax: retries, RetryWaitMin: wait, RetryWaitMax: longest,
		CheckRetry: retryable, ErrorHandler: retryablehttp.PassthroughErrorHandler,
		Backoff: func(first, longest time.Duration, attempt int, resp *http.Response) time.Duration {
			if resp != nil { // its body has been read
				flightOf(resp.Request.Context()).guard.enter(stagePause)
			}
			return backoff(first, longest, attempt, resp)
		},
		RequestLogHook: func(_ retryablehttp.Logger, r *http.Request, n int) {
			flightOf(r.Context()).attempt(n)
		},
	}
}

// onlyRoundTrip hides the other methods of a transport, and decides itself when a request is sent again because the kept connection was
// dead; see flight.replay. net/http would do that any number of times without reporting it, and not at all if the connection dies while
// the body is being sent, because it mistakes the failed write for a failed read. With HTTP/2, net/http knows which streams the server has
// not begun, and only those are sent again.
type onlyRoundTrip struct{ c *connections }

const (
	maxReplays = 16 // maximum number of dead connections in one attempt
	maxResends = 1  // in an exchange: how often a request that the kernel had received as a whole is sent again
)

// RoundTrip implements http.RoundTripper.
func (o onlyRoundTrip) RoundTrip(r *http.Request) (*http.Response, error) {
	f := flightOf(r.Context())
	t := o.c.of(f.session)
	if f.manner.closes() {
		t.CloseIdleConnections()
	}
	if f.http2 || r.GetBody == nil {
		return t.RoundTrip(r)
	}
	once := r.WithContext(r.Context())
	once.GetBody = nil // net/http never sends a body again that it cannot rewind
	resp, err := t.RoundTrip(once)
	for n := 0; f.again(r.Context(), n, err); n++ {
		if once.Body, err = r.GetBody(); err != nil {
			return nil, err
		}
		resp, err = t.RoundTrip(once)
	}
	return resp, err
}

// again reports whether a failed attempt is sent again after n replays, because its kept connection was dead.
func (f *flight) again(ctx context.Context, n int, err error) bool {
	return err != nil && n < maxReplays && f.over(ctx) == nil && f.replay()
}

// statusOverloaded is Anthropic's status where others use 503.
const statusOverloaded = 529

// retryable decides what is sent again: only what cannot have reached the model. It never returns an error, because that would replace the
// real one.
func retryable(ctx context.Context, resp *http.Response, err error) (bool, error) {
	return tryAgain(ctx, flightOf(ctx), resp, err), nil
}

// tryAgain is retryable for a flight. The timeouts stop during a pause, but not before the body of a refusal has ended. It has no first
// token; so if nothing limits the wait for that, the limit of a stream's silence counts.
func tryAgain(ctx context.Context, f *flight, resp *http.Response, err error) (again bool) {
	if f.over(ctx) != nil {
		return false
	}
	switch {
	case err != nil:
		if again = !f.connected() && !hopeless(err); again {
			f.retry(string(f.classify(err).Class))
			f.guard.enter(stagePause)
		}
	case resp.StatusCode == http.StatusTooManyRequests, resp.StatusCode == http.StatusServiceUnavailable, resp.StatusCode == statusOverloaded:
		again = true
		f.retry(fmt.Sprintf("HTTP status %d", resp.StatusCode))
		if f.guard.limits.first == 0 {
			f.guard.enter(stageStream)
		}
	}
	return again
}

// mayPass decides which calls of the API, whose times do not count, are sent again: all that failed for a reason that may be temporary.
func mayPass(ctx context.Context, resp *http.Response, err error) (bool, error) {
	switch {
	case ctx.Err() != nil:
		return false, nil
	case err != nil:
		return !hopeless(err) || flightOf(ctx).reached(), nil
	}
	return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode/100 == 5, nil
}

// backoff is the library's: Retry-After if the server sent one, else a wait that doubles. A server can ask for any wait, even one that
// overflows a time.Duration.
func backoff(first, longest time.Duration, attempt int, resp *http.Response) time.Duration {
	return max(0, min(retryablehttp.DefaultBackoff(first, longest, attempt, resp), longest))
}
