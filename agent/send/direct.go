// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// direct sends short requests by plain HTTP/1.1 on the goroutine that waits for the reply. net/http's transport has two more goroutines
// for each connection, one of which could read a reply that comes before the request has been sent. A short request is one write, so
// its reply cannot come earlier, and its cost at a high rate is mostly switching goroutines (docs/performance.md). Everything else is
// as with net/http, whose code writes the head of the request and reads the reply.
//
// Other requests go through net/http, over separate connections: TLS, HTTP/2, connections of sessions, connections that are not
// sockets, longer bodies, headers that change how a connection is used. So do all requests if timestamps are taken after the read: then
// only a goroutine that reads while another one writes notices that a reply was there before the write had returned
// (Exchange.WireLate); a kernel's timestamp shows it afterwards.
type direct struct {
	base  *url.URL
	addr  string // host and port
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	clk   clock.Clock
	cfg   *Config
	plain http.Header // of each request

	heads sync.Map // by headKey: []byte

	mu     sync.Mutex
	idle   []*link // the one that was used last is at the end
	timer  *time.Timer
	closed bool // no connection is kept
}

// maxDirect bounds the body, in bytes: the kernel accepts this much at once, whether the server reads or not.
const maxDirect = 32 << 10

// newDirect returns nil if exchanges have to go through net/http.
func newDirect(cfg *Config, base *url.URL, header http.Header, dial func(ctx context.Context, network, addr string) (net.Conn, error), clk clock.Clock) *direct {
	if base.Scheme != "http" || cfg.HTTP2 || cfg.Reuse == ReuseSession || !haveSockets || cfg.way == byNetHTTP || cfg.way == waysMix && (cfg.DialContext != nil || cfg.NoKernelStamps) {
		return nil
	}
	for _, name := range []string{"Connection", "Expect", "Upgrade", "Transfer-Encoding", "Trailer", "Te"} {
		if _, ok := header[name]; ok {
			return nil
		}
	}
	port := base.Port()
	if port == "" {
		port = "80"
	}
	d := &direct{base: base, addr: net.JoinHostPort(base.Hostname(), port), dial: dial, clk: clk, cfg: cfg, plain: header}
	if slices.ContainsFunc([]byte(d.addr), func(b byte) bool { return b >= 0x80 }) { // which net/http converts to an ASCII name
		return nil
	}
	return d
}

// link is a connection, and what has been read from it.
type link struct {
	*conn
	br    *bufio.Reader
	left  int64 // bytes that may still be read: limited for headers
	used  bool
	since time.Duration // it has been idle
}

// maxHeaders bounds the head of a reply, as net/http does.
const maxHeaders = 10 << 20

var errHeaders = fmt.Errorf("server response headers exceeded %d bytes", maxHeaders)

// Read implements io.Reader, for br.
func (l *link) Read(p []byte) (int, error) {
	if l.left <= 0 {
		return 0, errHeaders
	}
	n, err := l.conn.Read(p[:min(int64(len(p)), l.left)])
	l.left -= int64(n)
	return n, err
}

// readBuffer is the buffer of a connection, in bytes; see newTransport.
const readBuffer = 1 << 10

// take returns a connection: the one that was used last, if it is still there, else a new one.
func (d *direct) take(ctx context.Context, f *flight) (*link, error) {
	for {
		d.mu.Lock()
		d.closed = false
		n := len(d.idle)
		if n == 0 {
			break
		}
		l := d.idle[n-1]
		d.idle[n-1] = nil
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		if l.Quiet() {
			return l, nil
		}
		_ = l.Close()
	}
	d.mu.Unlock()
	c, err := d.dial(f.in(ctx), "tcp", d.addr)
	if err != nil {
		return nil, err
	}
	l := &link{conn: connOf(c)}
	l.br = bufio.NewReaderSize(l, readBuffer)
	return l, nil
}

// keep takes a connection back.
func (d *direct) keep(l *link) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed || len(d.idle) >= d.cfg.Connections {
		_ = l.Close()
		return
	}
	l.used, l.since = true, d.clk.Now()
	d.idle = append(d.idle, l)
	if len(d.idle) == 1 && d.timer == nil {
		d.timer = time.AfterFunc(idleConnTimeout, d.tidy)
	}
}

// tidy closes the connections that have been idle for too long.
func (d *direct) tidy() {
	d.mu.Lock()
	defer d.mu.Unlock()
	now, old := d.clk.Now(), 0
	for old < len(d.idle) && now-d.idle[old].since >= idleConnTimeout {
		_ = d.idle[old].Close()
		old++
	}
	d.idle = slices.Delete(d.idle, 0, old)
	switch {
	case d.timer == nil: // close was called
	case len(d.idle) == 0:
		d.timer = nil
	default:
		d.timer.Reset(d.idle[0].since + idleConnTimeout - now)
	}
}

// close closes the idle connections.
func (d *direct) close() {
	if d == nil {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.closed = true
	for _, l := range d.idle {
		_ = l.Close()
	}
	d.idle = nil
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
}

// headKey are the values that determine the head of most requests.
type headKey struct {
	path   string
	stream bool
}

// maxHeads bounds the number of cached heads; an API has few paths.
const maxHeads = 64

// head returns the head of a request without its length, its own headers and its empty line; nil if it cannot be written in advance.
// net/http writes it, so it is what net/http sends.
func (d *direct) head(path string, stream bool) []byte {
	key := headKey{path, stream}
	if known, ok := d.heads.Load(key); ok {
		return known.([]byte) // nothing else is in it
	}
	r, err := http.NewRequest(http.MethodPost, join(d.base, path), nil) //nolint:noctx // it is only written
	if err != nil {
		return nil
	}
	r.Header = d.plain.Clone()
	if _, ok := r.Header["Accept"]; !ok {
		r.Header["Accept"] = accept[stream]
	}
	r.Close = d.cfg.Reuse == ReuseNever
	for name, values := range r.Header {
		if !goesAsItIs(name, values) {
			return nil
		}
	}
	var text bytes.Buffer
	if r.Write(&text) != nil {
		return nil
	}
	head := bytes.Replace(text.Bytes(), []byte("\r\nContent-Length: 0\r\n"), []byte("\r\n"), 1)
	head = bytes.TrimSuffix(head, []byte("\r\n"))
	n := 0
	d.heads.Range(func(any, any) bool { n++; return true })
	if n < maxHeads {
		d.heads.Store(key, head)
	}
	return head
}

// goesAsItIs reports whether net/http would write a header unchanged.
func goesAsItIs(name string, values []string) bool {
	for _, b := range []byte(name) {
		if b != '-' && (b < '0' || b > '9') && (b < 'A' || b > 'Z') && (b < 'a' || b > 'z') {
			return false
		}
	}
	for _, v := range values {
		for i, b := range []byte(v) {
			if b < ' ' || b >= 0x7f || b == ' ' && (i == 0 || i == len(v)-1) {
				return false
			}
		}
	}
	return name != ""
}

// outgoing are the bytes of requests until they are written.
var outgoing = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// takes reports whether a request can be sent directly.
func (d *direct) takes(req *Request) bool {
	if d == nil || req.Body.Size <= 0 || req.Body.Size > maxDirect || d.head(req.Path, req.Stream) == nil {
		return false
	}
	for name, values := range req.Header {
		switch name = http.CanonicalHeaderKey(name); name {
		case "Accept", "User-Agent", "Host", "Content-Length", "Connection", "Expect", "Upgrade", "Transfer-Encoding", "Trailer", "Te":
			return false
		}
		if _, twice := d.plain[name]; twice || !goesAsItIs(name, values) {
			return false
		}
	}
	return true
}

// compose writes a request into a buffer.
func (d *direct) compose(to *bytes.Buffer, req *Request) error {
	to.Reset()
	to.Write(d.head(req.Path, req.Stream))
	to.WriteString("Content-Length: ")
	to.Write(strconv.AppendInt(to.AvailableBuffer(), req.Body.Size, 10))
	to.WriteString("\r\n")
	for name, values := range req.Header {
		name = http.CanonicalHeaderKey(name)
		for _, v := range values {
			to.WriteString(name)
			to.WriteString(": ")
			to.WriteString(v)
			to.WriteString("\r\n")
		}
	}
	to.WriteString("\r\n")
	to.Grow(int(req.Body.Size))
	body := to.AvailableBuffer()[:req.Body.Size]
	if n, err := io.ReadFull(req.Body.Open(), body); err != nil {
		return fmt.Errorf("the body has %d bytes, not %d: %w", n, req.Body.Size, err)
	}
	to.Write(body)
	return nil
}

// roundTrip sends a request, and retries it as often as the client's settings say, as go-retryablehttp does.
func (d *direct) roundTrip(ctx context.Context, f *flight, req *Request) (*http.Response, error) {
	for n := 0; ; n++ {
		f.attempt(n)
		resp, err := d.attempt(ctx, f, req)
		if !tryAgain(ctx, f, resp, err) || n == d.cfg.Retries {
			return resp, err
		}
		wait := backoff(d.cfg.RetryWait, d.cfg.MaxRetryWait, n, resp)
		if err == nil {
			_, _ = io.CopyN(io.Discard, resp.Body, maxErrorBody)
			_ = resp.Body.Close()
		}
		if !clock.Pause(ctx, wait) {
			return nil, context.Cause(ctx)
		}
	}
}

// attempt sends a request, and again if a kept connection turns out to be dead; see onlyRoundTrip.
func (d *direct) attempt(ctx context.Context, f *flight, req *Request) (*http.Response, error) {
	resp, err := d.once(ctx, f, req)
	for n := 0; f.again(ctx, n, err); n++ {
		resp, err = d.once(ctx, f, req)
	}
	return resp, err
}

var errGone = errors.New("the server closed the connection")

// once sends a request on one connection and reads the head of the reply.
func (d *direct) once(ctx context.Context, f *flight, req *Request) (*http.Response, error) {
	if ctx.Err() != nil { // or a request could be written before the context has closed its connection
		return nil, context.Cause(ctx)
	}
	f.ask()
	l, err := d.take(ctx, f)
	if err != nil {
		return nil, err
	}
	f.gotConn(httptrace.GotConnInfo{Conn: l.conn, Reused: l.used})
	r := &inbound{d: d, link: l}
	r.stop = context.AfterFunc(ctx, func() { _ = l.conn.Close() })
	if err := d.write(ctx, f, l, req); err != nil {
		_ = r.Close()
		return nil, err
	}
	resp, err := r.head(f)
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	if resp.StatusCode/100 == 3 { // an address may be relative to this one
		if u, err := url.Parse(join(d.base, req.Path)); err == nil {
			resp.Request = &http.Request{Method: http.MethodPost, URL: u}
		}
	}
	return resp, nil
}

// write sends a request when its gate is open.
func (d *direct) write(ctx context.Context, f *flight, l *link, req *Request) error {
	text := outgoing.Get().(*bytes.Buffer) // nothing else is in the pool
	defer outgoing.Put(text)
	if err := d.compose(text, req); err != nil {
		return err
	}
	if err := f.gate.pass(ctx.Done()); err != nil {
		return err
	}
	if l.used && f.gate != nil && !l.Quiet() { // it was alive when it was taken, but has waited since
		return errGone
	}
	f.uploaded.Store(req.Body.Size)
	f.guard.alive(d.clk.Now())
	_, err := l.conn.Write(text.Bytes())
	f.wrote(httptrace.WroteRequestInfo{Err: err})
	return err
}

// inbound is a reply on its connection, and the body of that reply.
type inbound struct {
	d    *direct
	link *link
	stop func() bool // closes the connection with the context
	body io.ReadCloser
	over bool // the reply has been read to its end, and another one may follow
	ends bool // the connection ends with it
}

// posted are the facts about the request that reading its reply needs.
var posted = &http.Request{Method: http.MethodPost}

// maxInformational is the maximum number of informational replies before the final one.
const maxInformational = 5

// head reads the head of a reply, and prepares its body.
func (r *inbound) head(f *flight) (*http.Response, error) {
	l := r.link
	l.left = maxHeaders
	if _, err := l.br.Peek(1); err != nil {
		return nil, err
	}
	f.answered()
	for n := 0; ; n++ {
		resp, err := http.ReadResponse(l.br, posted)
		switch {
		case err != nil:
			return nil, err
		case n == maxInformational:
			return nil, errors.New("net/http: too many 1xx informational responses")
		case resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols:
			continue
		}
		l.left = 1<<63 - 1
		r.ends = resp.Close || r.d.cfg.Reuse == ReuseNever || resp.StatusCode == http.StatusSwitchingProtocols
		r.over = resp.ContentLength == 0
		r.body, resp.Body = resp.Body, r
		return resp, nil
	}
}

// Read implements io.Reader.
func (r *inbound) Read(p []byte) (int, error) {
	n, err := r.body.Read(p)
	r.over = r.over || err == io.EOF
	return n, err
}

// Close returns the connection for reuse, or closes it if it cannot be used again.
func (r *inbound) Close() error {
	l := r.link
	if l == nil {
		return nil
	}
	r.link = nil
	if !r.stop() || !r.over || r.ends || l.br.Buffered() > 0 {
		return l.conn.Close()
	}
	r.d.keep(l)
	return nil
}
