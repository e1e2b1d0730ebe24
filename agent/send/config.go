// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"cmp"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/http/httpguts"
)

// Defaults of Config.
const (
	DefaultMaxLine  = 16 << 20
	DefaultMaxReply = 256 << 20
)

// Config says where requests are sent and how long they may take. Only URL is required. Printing a Config shows neither the key nor the
// values of headers.
type Config struct {
	// URL is the engine's base URL, http or https. A path and a query are kept. A trailing /v1 is not doubled, nor is an endpoint's path
	// after it, which other tools expect there.
	URL string
	// Header is sent with each request. It overrides the client's own headers, and a request's headers override it.
	Header http.Header
	APIKey string // empty = none
	// InstanceHeader is the response header that names the instance behind a router; empty = the first header of a known router.
	InstanceHeader string
	// KeyHeader is the header that has the API key and nothing else; empty = Authorization, with the key as a bearer token.
	KeyHeader string
	// TLS is used for https; nil = the system's certificates.
	TLS *tls.Config
	// HTTP2 uses HTTP/2 (over plain http with prior knowledge). Many streams then share a connection, so timestamps are taken when the body
	// is read, and BytesSent and BytesRead count only bodies.
	HTTP2 bool
	// Reuse says which requests may use the same connection, one after the other; "" = any.
	Reuse Reuse
	// Connections is the expected peak of requests under way: so many idle connections are kept. 0 = 65,536. It limits
	// nothing: a pool that makes requests wait would turn an open loop into a closed one.
	Connections int

	// ConnectTimeout limits DNS, TCP and TLS together. A connect that times out is not retried.
	ConnectTimeout time.Duration
	// FirstTokenTimeout limits the time from Exchange.Wire to the first content, or, of a reply that is not a stream, to its end.
	FirstTokenTimeout time.Duration
	// IdleTimeout limits the silence of a stream after its first content (without a FirstTokenTimeout: after the first byte of its body; its
	// headers do not count, because engines send them before they begin with the prompt, which may wait for long), and of an
	// upload that makes no progress. Comments end a silence.
	IdleTimeout time.Duration
	// TotalTimeout limits an exchange from Start to End, including retries. For all four timeouts, 0 = none.
	TotalTimeout time.Duration

	// MaxLine limits, in bytes, each part of a reply that is kept in memory: a line, an event, a reply that is not a stream, a stored
	// reply. MaxReply limits a reply as a whole. 0 = the defaults.
	MaxLine, MaxReply int

	// Retries is how often a request is sent again if there was no connection, or on 429, 503 and 529.
	Retries int
	// RetryWait is the wait before the first retry, doubled for each further one, up to MaxRetryWait, which also limits Retry-After. 0 =
	// 500 ms and 30 s.
	RetryWait, MaxRetryWait time.Duration

	// NoKernelStamps takes timestamps after the read call even if the kernel has better ones.
	NoKernelStamps bool
	// DialContext makes connections other than TCP's, as for tests in virtual time; nil = net.Dialer.
	DialContext func(ctx context.Context, network, addr string) (net.Conn, error)

	way way
}

// way says how requests are sent.
type way uint8

const (
	// waysMix sends a request directly if possible, else with net/http, and uses the kernel's timestamps.
	waysMix way = iota
	// byNetHTTP and byDirect are for tests: always net/http, and direct on whatever DialContext returns.
	byNetHTTP
	byDirect
)

// String returns the configuration without its secrets.
func (c Config) String() string {
	text, _ := c.MarshalJSON() // words and numbers always marshal
	return string(text)
}

// GoString is String, because %#v must not show more.
func (c Config) GoString() string { return c.String() }

// MarshalJSON returns the same as String.
func (c Config) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{
		"url": c.shownURL(), "headers": slices.Sorted(maps.Keys(c.Header)), "key": c.APIKey != "", "http2": c.HTTP2, "retries": c.Retries,
		"connect_timeout": c.ConnectTimeout.String(), "first_token_timeout": c.FirstTokenTimeout.String(),
		"idle_timeout": c.IdleTimeout.String(), "total_timeout": c.TotalTimeout.String(),
	})
}

// shownURL omits the parts that may be secret: user, password and query.
func (c Config) shownURL() string {
	u, err := url.Parse(c.URL)
	if err != nil {
		return "(unreadable)"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// check returns all errors in the configuration.
func (c Config) check() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("send: "+format, args...)) }
	u, err := url.Parse(c.URL)
	switch {
	case err != nil:
		bad("the URL cannot be read; want http://host:port or https://host:port")
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		bad("url %q: want http://host:port or https://host:port", c.shownURL())
	case u.User != nil:
		bad("url %q: it contains a user name; give credentials as API key or header", c.shownURL())
	}
	if err := CheckKey(c.APIKey); err != nil {
		bad("%w", err)
	}
	if err := CheckHeader(c.Header); err != nil {
		bad("%w", err)
	}
	if !c.Reuse.Known() {
		bad("connections %q: want %s, %s or %s", c.Reuse, ReuseAny, ReuseNever, ReuseSession)
	}
	numbers := map[string]int64{
		"connections": int64(c.Connections), "retries": int64(c.Retries), "max line": int64(c.MaxLine), "max reply": int64(c.MaxReply),
		"connect timeout": int64(c.ConnectTimeout), "first-token timeout": int64(c.FirstTokenTimeout), "idle timeout": int64(c.IdleTimeout),
		"total timeout": int64(c.TotalTimeout), "retry wait": int64(c.RetryWait), "max retry wait": int64(c.MaxRetryWait),
	}
	for _, name := range slices.Sorted(maps.Keys(numbers)) {
		if numbers[name] < 0 {
			bad("%s: it is below 0; want 0 or more", name)
		}
	}
	return errors.Join(errs...)
}

// CheckKey returns an error if no header can carry an API key. The error does not repeat it.
func CheckKey(key string) error {
	if strings.ContainsFunc(key, func(r rune) bool { return r <= ' ' || r >= 0x7f }) {
		return errors.New("API key: it holds a character that no header can carry (a line end at its end?); want visible ASCII without spaces")
	}
	return nil
}

// CheckHeader returns an error if no request can carry one of the headers. The error does not repeat their values.
func CheckHeader(h http.Header) error {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		if !httpguts.ValidHeaderFieldName(name) {
			return fmt.Errorf("header %.64q: its name is not one that HTTP allows; want letters, digits and -", name)
		}
		if i := slices.IndexFunc(h[name], func(value string) bool { return !httpguts.ValidHeaderFieldValue(value) }); i >= 0 {
			return fmt.Errorf("header %s: its value holds a line end or another control character, which no header can carry; leave it out", name)
		}
	}
	return nil
}

func (c *Config) setDefaults() {
	c.MaxLine = cmp.Or(c.MaxLine, DefaultMaxLine)
	c.MaxReply = cmp.Or(c.MaxReply, DefaultMaxReply)
	c.Connections = cmp.Or(c.Connections, 1<<16)
	c.RetryWait = cmp.Or(c.RetryWait, 500*time.Millisecond)
	c.MaxRetryWait = cmp.Or(c.MaxRetryWait, 30*time.Second)
}

// join returns the URL of a path, which starts with a slash.
func join(base *url.URL, path string) string {
	u := *base
	u.Path = strings.TrimRight(u.Path, "/")
	for _, endpoint := range []string{"/chat/completions", "/completions", "/responses", "/messages", "/embeddings"} {
		if before, found := strings.CutSuffix(u.Path, "/v1"+endpoint); found {
			u.Path = before
			break
		}
	}
	u.Path = strings.TrimSuffix(u.Path, "/v1") // paths begin with it, if they need it
	u.Path, u.RawPath = u.Path+path, ""
	return u.String()
}

// hasty reports whether a timeout is so short that a reply that is read a little late could miss it.
func (c *Config) hasty() bool {
	for _, limit := range []time.Duration{c.FirstTokenTimeout, c.IdleTimeout, c.TotalTimeout} {
		if limit > 0 && limit < time.Second {
			return true
		}
	}
	return false
}
