// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/go-retryablehttp"

	"github.com/moonloop/moonloop/agent/clock"
)

// Client sends requests to one engine. Safe for concurrent use.
type Client struct {
	cfg         Config
	base        *url.URL
	header      http.Header // for each request
	secrets     []string    // never shown
	clk         clock.Clock
	wall        *wall
	connections *connections
	direct      *direct               // for Do; nil if it cannot be used
	replay      *retryablehttp.Client // for Do
	look        *retryablehttp.Client // for Get
	api         *retryablehttp.Client // for JSON

	company company      // of direct exchanges
	manner  manner       // of the server
	brevity brevity      // of its replies
	flights sync.Pool    // those that are over, for use by the next exchanges
	chunks  atomic.Int64 // output chunks that arrived
}

// Chunks returns how many output chunks have arrived so far, in all replies of the client.
func (c *Client) Chunks() int64 { return c.chunks.Load() }

// idleConnTimeout is how long an idle connection is kept. Servers commonly close it earlier; a request for which it was taken is sent again.
const idleConnTimeout = 90 * time.Second

// New makes a client. It does not connect yet. It uses no proxy, whatever the environment says, because a figure must not depend on a proxy
// that nobody named.
func New(cfg Config, clk clock.Clock) (*Client, error) {
	if err := cfg.check(); err != nil {
		return nil, err
	}
	cfg.setDefaults()
	base, err := url.Parse(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("send: the URL cannot be read: %w", err)
	}
	c := &Client{cfg: cfg, base: base, clk: clk, wall: newWall(clk), header: baseHeader(cfg), secrets: secretsOf(cfg, base.Query())}
	c.connections = newConnections(cfg.Reuse, func() *http.Transport { return newTransport(cfg, c.wall) })
	c.direct = newDirect(&c.cfg, base, c.header, c.connections.shared.DialContext, clk)
	client := &http.Client{
		Transport: onlyRoundTrip{c.connections},
		// A redirect counts as an answer: following it would send prompt and key to an address that nobody named.
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	c.replay = newRetrier(client, cfg.Retries, cfg.RetryWait, cfg.MaxRetryWait)
	c.look = newRetrier(client, apiRetries, min(cfg.RetryWait, lookRetryWait), cfg.MaxRetryWait)
	patient := *client
	patient.Timeout = c.bound(CallLimit) // for each attempt
	c.api = newRetrier(&patient, max(apiRetries, cfg.Retries), min(cfg.RetryWait, callRetryWait), cfg.MaxRetryWait)
	c.api.CheckRetry = mayPass
	return c, nil
}

// secretsOf returns the API key, and all values of the query and of headers that are long enough to be keys.
func secretsOf(cfg Config, query url.Values) (secrets []string) {
	if cfg.APIKey != "" {
		secrets = append(secrets, cfg.APIKey)
	}
	for _, of := range []map[string][]string{query, cfg.Header} {
		for _, value := range slices.Concat(slices.Collect(maps.Values(of))...) {
			_, key, _ := strings.Cut(value, " ") // without "Bearer"
			for _, s := range []string{value, key} {
				if len(s) >= minSecret {
					secrets = append(secrets, s)
				}
			}
		}
	}
	return secrets
}

func baseHeader(cfg Config) http.Header {
	h := http.Header{
		"Content-Type": {"application/json"},
		"User-Agent":   {"moonloop"},
	}
	switch {
	case cfg.APIKey != "" && cfg.KeyHeader != "":
		h.Set(cfg.KeyHeader, cfg.APIKey)
	case cfg.APIKey != "":
		h.Set("Authorization", "Bearer "+cfg.APIKey)
	}
	for name, values := range cfg.Header {
		h[http.CanonicalHeaderKey(name)] = values
	}
	return h
}

func newTransport(cfg Config, w *wall) *http.Transport {
	reach := cfg.DialContext
	if reach == nil {
		reach = new(net.Dialer).DialContext
	}
	dial := func(ctx context.Context, network, addr string) (net.Conn, error) {
		if cfg.ConnectTimeout > 0 { // net/http continues to dial for a request that has given up
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, cfg.ConnectTimeout)
			defer cancel()
		}
		return reach(ctx, network, addr)
	}
	t := &http.Transport{
		TLSClientConfig:     cfg.TLS,
		TLSHandshakeTimeout: cfg.ConnectTimeout,
		MaxIdleConnsPerHost: cfg.Connections,
		DisableKeepAlives:   cfg.Reuse == ReuseNever,
		IdleConnTimeout:     idleConnTimeout,
		DisableCompression:  true, // the arrivals of a compressed stream cannot be measured
		// Room for several chunks of a stream, for every open stream. The writer's buffer stays at 4 KiB, because a short request that did
		// not fit would need a second system call.
		ReadBufferSize: readBuffer,
		Protocols:      new(http.Protocols),
		DialContext:    dial,
	}
	if cfg.TLS != nil {
		t.TLSClientConfig = cfg.TLS.Clone()
	}
	if cfg.HTTP2 {
		t.Protocols.SetHTTP2(true)
		t.Protocols.SetUnencryptedHTTP2(true)
		return t
	}
	t.Protocols.SetHTTP1(true)
	t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newConn(conn, w, !cfg.NoKernelStamps), nil
	}
	return t
}

// Close closes idle connections. Exchanges in flight continue.
func (c *Client) Close() {
	c.connections.closeIdle()
	c.direct.close()
	c.company.close()
}

// ClockStep returns the greatest change of the wall clock against the monotonic clock since New, and whether kernel timestamps were used.
// They use the wall clock: if it changed by more than a few microseconds, the clock was set, and timestamps around that time are wrong.
func (c *Client) ClockStep() (step time.Duration, used bool) {
	return c.wall.Step(), c.wall.used.Load()
}

// Do sends the request and fills in x, from scratch. x.Err says how it failed. If ctx is cancelled before the reply is complete, x keeps
// what was reached until then, and the class of x.Err is ClassCancelled.
func (c *Client) Do(ctx context.Context, req *Request, x *Exchange) {
	*x = Exchange{
		Start: c.clk.Now(), Wire: clock.Never, FirstByte: clock.Never, Headers: clock.Never,
		FirstEvent: clock.Never, FirstAnswer: clock.Never, End: clock.Never, Usage: NoUsage,
	}
	f := c.newFlight(req, x.Start)
	inner := ctx
	if f.direct {
		released := c.company.part
		if !c.company.join(ctx, f) {
			alone := context.AfterFunc(ctx, f.stop)
			released = func(*flight) bool { return alone() }
		}
		defer func() {
			if released(f) && f.unused() {
				c.flights.Put(f)
			}
		}()
	} else {
		inner, f.guard.cancel = context.WithCancelCause(ctx)
		defer f.guard.cancel(nil)
	}
	f.guard.enter(stagePause) // the total timeout starts
	req.Gate.onShut(f.guard.cancel)

	s := streams.Get().(*stream) // the pool has only streams
	defer s.free()
	s.begin(x, f, req, &c.chunks, int64(c.cfg.MaxReply), c.cfg.MaxLine)

	var resp *http.Response
	var err error
	if f.direct {
		resp, err = c.direct.roundTrip(inner, f, req)
	} else {
		resp, err = c.roundTrip(f.in(inner), c.replay, http.MethodPost, req)
	}
	if err == nil {
		f.opened(resp.ContentLength < 0)
		x.Instance = c.cfg.instance(resp.Header)
		err = s.take(resp)
		if f.direct { // close it only after the connection's counters have been read
			defer resp.Body.Close() //nolint:errcheck // it has been read, or is given up
		} else {
			_ = resp.Body.Close()
		}
	} else if req.Gate.current() == gateShut {
		err = errShut
	}
	x.Start = req.Gate.since(x.Start)
	c.conclude(ctx, req, s, err, f.guard.stop())
	if f.sample && x.Err == nil {
		c.brevity.add(x.End - x.FirstByte)
	}
	c.wall.Refresh()
}

// roundTrip sends a request through one of the retriers. The caller closes the body.
func (c *Client) roundTrip(ctx context.Context, via *retryablehttp.Client, method string, req *Request) (*http.Response, error) {
	var body any
	if req.Body.Size > 0 {
		body = retryablehttp.ReaderFunc(func() (io.Reader, error) {
			return &upload{Reader: req.Body.Open(), done: ctx.Done(), flight: flightOf(ctx), size: req.Body.Size}, nil
		})
	}
	r, err := retryablehttp.NewRequestWithContext(ctx, method, join(c.base, req.Path), body)
	if err != nil {
		return nil, err
	}
	r.ContentLength = req.Body.Size
	r.Header = maps.Clone(c.header)
	for _, h := range req.Header {
		r.Header[h.Name] = []string{h.Value}
	}
	if _, ok := r.Header["Accept"]; !ok {
		r.Header["Accept"] = accept[req.Stream]
	}
	resp, err := via.Do(r)
	if err == nil && resp.StatusCode == http.StatusSwitchingProtocols {
		_ = resp.Body.Close() // closes the connection itself, which no context ends: reading from it would exceed every timeout
		resp.Body = http.NoBody
	}
	return resp, err
}

var accept = map[bool][]string{true: {mediaEvents}, false: {mediaJSON}}

// conclude derives the exchange's end and its error from the way in which it ended.
func (c *Client) conclude(ctx context.Context, req *Request, s *stream, err error, expired *timeout) {
	x, f := s.x, s.flight
	fail := func(class Class, message string, cause error) {
		x.Err = &Error{Class: class, Message: message, Cause: cause}
	}
	x.End = c.clk.Now()
	stopped := expired != nil || ctx.Err() != nil
	if expired == tailCut {
		err = nil // the reply was complete
	}
	switch {
	case s.failure != nil:
		x.Err = s.failure
		most := maxServerMessage
		if x.Status/100 == 3 { // the text is not the server's, and its end says what to do
			most = maxMessage
		}
		x.Err.Message = cleaned(x.Err.Message, c.secrets, req.Body, most)
	case err == nil, s.complete() && (stopped || x.Done):
		// The reply is complete: neither our timeout nor an abrupt close changes that.
		if !s.complete() {
			fail(ClassIncomplete, "the reply ended without a finish reason", nil)
		} else if s.broken != "" {
			fail(s.broken, "the engine did not complete the reply: its finish reason is "+string(s.broken), nil)
		}
	case expired != nil && expired.class != "":
		fail(expired.class, f.told(expired.text), expired)
	case ctx.Err() != nil:
		fail(ClassCancelled, "stopped before the reply was complete", context.Cause(ctx))
	default:
		x.Err = f.classify(err)
		x.Err.Message = cleaned(x.Err.Message, c.secrets, req.Body, maxMessage)
	}
	if last := s.in.last; last.number > 0 && (x.Err == nil || err == nil) {
		x.End = time.Duration(last.at)
		if a, ok := f.last(); ok { // the end of the last HTTP chunk is not a byte of the body
			x.End = max(x.End, time.Duration(a.at))
		}
	}
	s.finish()
	f.copyTo(x)
	// Hide secrets in the names that the server sent, too: they may contain the key that it received.
	names := []*string{&x.ResponseID, &x.Instance, &x.Model, &x.FinishReason}
	if x.Err != nil {
		x.Err.Status = x.Status
		names = append(names, &x.Err.Code)
	}
	for _, name := range names {
		*name = c.Hidden(*name)
	}
}

// Hidden replaces the client's secrets in a text from the server.
func (c *Client) Hidden(text string) string { return Hidden(text, c.secrets) }
