// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/url"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
)

// direct sends short requests by plain HTTP/1.1, each with a single goroutine, which waits for the reply. net/http's transport has two
// more goroutines for each connection, one of which could read a reply that comes before the request has been sent. A short request is one
// write, so no reply can come before it has been sent, and what it costs at a high rate is mostly the switching of goroutines
// (docs/performance.md). Everything else is as with net/http, whose code writes the head of the request, and reads every reply that is not
// a usual one (head.go).
//
// Other requests go through net/http, over separate connections: those that use TLS, HTTP/2, a connection for each session, or a connection
// that is not a socket, those with longer bodies, and those with headers that change how a connection is used. So do all requests if
// timestamps are taken after the read: then only a goroutine that reads while another one writes notices that a reply was there before
// the write had returned (Exchange.WireLate). With a kernel's timestamp, this can be seen afterwards.
type direct struct {
	base  *url.URL
	addr  string // host and port
	dial  func(ctx context.Context, network, addr string) (net.Conn, error)
	clk   clock.Clock
	cfg   *Config
	plain http.Header // of each request

	wanted []string // headers of replies that are read

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
	d.wanted = append([]string{"Content-Type", promptTokensHeader}, instanceHeaders...)
	if cfg.InstanceHeader != "" {
		d.wanted = append(d.wanted[:2], http.CanonicalHeaderKey(cfg.InstanceHeader))
	}
	if slices.ContainsFunc([]byte(d.addr), func(b byte) bool { return b >= 0x80 }) { // which net/http converts to an ASCII name
		return nil
	}
	return d
}

// link is a connection, and what has been read from it.
type link struct {
	*conn
	br    *bufio.Reader
	left  int64 // bytes that may still be read: limited while headers are read
	used  bool
	since time.Duration                  // when it became idle
	end   func()                         // closes it; made once
	start func() (empty bool, err error) // the start of request; made once

	// Used by one exchange after another:
	request letter
	reply   inbound
	resp    http.Response // of a usual reply
	head    head
	body    usualBody
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

// peek reads the first byte of the reply. The exchange is at rest until then, if it can be.
func (l *link) peek(rests *atomic.Int64) ([]byte, error) {
	if rests != nil && l.stamped != nil {
		rests.Add(-1)
		defer rests.Add(1)
	}
	return l.br.Peek(1) //nolint:wrapcheck // as of a connection
}

// readBuffer is the buffer of a connection, in bytes; see newTransport.
const readBuffer = 1 << 10

// take returns a connection: the idle one that was used last, or a new one.
func (d *direct) take(ctx context.Context, f *flight) (*link, error) {
	d.mu.Lock()
	d.closed = false
	if n := len(d.idle); n > 0 {
		l := d.idle[n-1]
		d.idle[n-1] = nil
		d.idle = d.idle[:n-1]
		d.mu.Unlock()
		return l, nil
	}
	d.mu.Unlock()
	var c net.Conn
	var failed error
	err := f.slowly(ctx, func(ctx context.Context) { c, failed = d.dial(f.in(ctx), "tcp", d.addr) })
	if failed != nil {
		return nil, failed
	}
	if err != nil {
		if c != nil {
			_ = c.Close()
		}
		return nil, err
	}
	l := &link{conn: connOf(c)}
	l.br = bufio.NewReaderSize(l, readBuffer)
	l.end = func() { _ = l.conn.Close() }
	l.start = l.request.start
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

// head returns the head of a request, without the length of the body, the request's own headers and the empty line; nil if it cannot be
// written in advance. net/http's code writes it, so its bytes are those that net/http would send.
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
		if !goesAsItIs(name, values...) {
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
func goesAsItIs(name string, values ...string) bool {
	return plainName(name) && !slices.ContainsFunc(values, func(v string) bool { return !plainValue(v) || strings.Trim(v, " ") != v })
}

// plainName reports whether net/http reads and writes a header's name unchanged, except for the case of its letters.
func plainName[T string | []byte](name T) bool {
	for _, b := range []byte(name) {
		if b != '-' && (b < '0' || b > '9') && (b < 'A' || b > 'Z') && (b < 'a' || b > 'z') {
			return false
		}
	}
	return len(name) > 0
}

// plainValue reports whether net/http reads and writes a header's value unchanged, except for spaces around it.
func plainValue[T string | []byte](value T) bool {
	for _, b := range []byte(value) {
		if b < ' ' || b >= 0x7f {
			return false
		}
	}
	return true
}

// outgoing are buffers for the bytes of requests that are yet to be written.
var outgoing = sync.Pool{New: func() any { return new(bytes.Buffer) }}

// takes reports whether a request can be sent directly.
func (d *direct) takes(req *Request) bool {
	if d == nil || req.Body.Size <= 0 || req.Body.Size > maxDirect || d.head(req.Path, req.Stream) == nil {
		return false
	}
	for _, h := range req.Header {
		switch h.Name {
		case "Accept", "User-Agent", "Host", "Content-Length", "Connection", "Expect", "Upgrade", "Transfer-Encoding", "Trailer", "Te":
			return false
		}
		if _, twice := d.plain[h.Name]; twice || !goesAsItIs(h.Name, h.Value) {
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
	for _, h := range req.Header {
		to.WriteString(h.Name)
		to.WriteString(": ")
		to.WriteString(h.Value)
		to.WriteString("\r\n")
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
			f.guard.enter(stagePause)
		}
		if err := f.slowly(ctx, func(ctx context.Context) { clock.Pause(ctx, wait) }); err != nil {
			return nil, err
		}
	}
}

// attempt sends a request, and sends it again if a kept connection turns out to be dead; see onlyRoundTrip.
func (d *direct) attempt(ctx context.Context, f *flight, req *Request) (*http.Response, error) {
	resp, err := d.once(ctx, f, req)
	for n := 0; f.again(ctx, n, err); {
		if !errors.Is(err, errGone) { // with errGone nothing was sent, so only the number of kept connections limits the attempts
			n++
		}
		resp, err = d.once(ctx, f, req)
	}
	return resp, err
}

var errGone = errors.New("the server closed the connection")

// once sends a request on one connection and reads the head of the reply.
func (d *direct) once(ctx context.Context, f *flight, req *Request) (*http.Response, error) {
	if err := f.over(ctx); err != nil { // else a request could still be written, although its exchange has ended
		return nil, err
	}
	f.ask()
	l, err := d.take(ctx, f)
	if err != nil {
		return nil, err
	}
	f.gotConn(httptrace.GotConnInfo{Conn: l.conn, Reused: l.used})
	r := &l.reply
	*r = inbound{d: d, link: l, flight: f}
	if !f.waits(l.end) {
		_ = r.Close()
		return nil, errStopped
	}
	w := &l.request
	*w = letter{flight: f, link: l, size: req.Body.Size, text: outgoing.Get().(*bytes.Buffer)} // nothing else is in the pool
	if err := d.compose(w.text, req); err != nil {
		w.shred()
		_ = r.Close()
		return nil, err
	}
	resp, err := r.head()
	if err != nil {
		_ = r.Close()
		return nil, err
	}
	if resp.StatusCode/100 == 3 { // the address of a redirect may be relative to the request's
		if u, err := url.Parse(join(d.base, req.Path)); err == nil {
			resp.Request = &http.Request{Method: http.MethodPost, URL: u}
		}
	}
	return resp, nil
}

// letter is a request that has been composed, and its connection. If the request's gate is closed, the gate sends the request when it
// opens, while the request's goroutine waits for the reply.
type letter struct {
	flight *flight
	link   *link
	text   *bytes.Buffer
	size   int64 // of the body
	armed  bool  // its gate sends it
	err    error // why it was not sent
}

// start sends the request, or leaves that to the gate if the gate is not open. By then the poller listens to the connection. A kept
// connection is examined before the request is sent: it has nothing to read until the poller notices that something has arrived, so empty
// is true. A new connection is not examined.
func (w *letter) start() (empty bool, err error) {
	if w.armed = w.flight.gate.arm(w); !w.armed {
		w.send()
		err = w.err
	}
	return w.link.used, err
}

// send sends the request, unless its gate is shut or the kept connection is dead.
func (w *letter) send() {
	switch {
	case w.flight.gate.current() == gateShut:
		w.err = errShut
		w.shred()
	case w.dead():
		w.end(errGone)
	default:
		w.begin()
		w.postRest()
	}
}

// begin records that the request is being sent.
func (w *letter) begin() {
	w.flight.uploaded.Store(w.size)
	w.flight.guard.alive(w.flight.clk.Now())
}

// dead reports whether a kept connection has ended, or received something, since its last reply.
func (w *letter) dead() bool { return w.link.used && !w.link.Quiet() }

// post sends the request without blocking, and returns whether the request is over: sent, or failed. If the kernel has no room for all of
// it, which does not happen with maxDirect and the usual buffers, post returns false, and postRest must be called.
func (w *letter) post() (over bool) {
	if w.dead() {
		w.end(errGone)
		w.link.end() // the poller may have reported the connection's end before it listened
		return true
	}
	w.begin()
	n, err := w.link.WriteNow(w.text.Bytes())
	if err == nil && n < w.text.Len() {
		w.text.Next(n)
		return false
	}
	w.end(err)
	return true
}

// postRest sends what has not been sent yet, and may block.
func (w *letter) postRest() {
	_, err := w.link.conn.Write(w.text.Bytes())
	w.end(err)
}

// end records that the request is over.
func (w *letter) end(err error) {
	w.err = err
	w.flight.wrote(httptrace.WroteRequestInfo{Err: err})
	w.shred()
}

// shred gives the text's memory back.
func (w *letter) shred() {
	outgoing.Put(w.text)
	w.text = nil
}

// sent returns nil if a request was sent. It is called when the connection has something to read: before the gate is open, that can only be
// the connection's end.
func (w *letter) sent() error {
	switch {
	case w.armed && w.flight.gate.disarm():
		w.shred()
		w.err = errGone
	case w.armed:
		w.flight.gate.Wait()
	}
	if w.err == errGone { //nolint:errorlint // it is not wrapped
		w.flight.unsent()
	}
	return w.err
}

// inbound is a reply on its connection, and the body of that reply.
type inbound struct {
	d      *direct
	link   *link
	flight *flight
	body   io.ReadCloser
	over   bool // the reply has been read to its end, and another one may follow
	ends   bool // the connection ends with it
}

// posted are the facts about the request that reading its reply needs.
var posted = &http.Request{Method: http.MethodPost}

// head sends the request, or waits until its gate has sent it, reads the head of the reply, and prepares its body.
func (r *inbound) head() (*http.Response, error) {
	l := r.link
	l.left = maxHeaders
	l.before = l.start
	_, err := l.peek(r.flight.rests)
	runtime.Gosched() // if many replies have come at once, requests that are due go first: they are late, and the replies have their timestamps
	if err := cmp.Or(l.request.sent(), err); err != nil {
		return nil, err
	}
	r.flight.answered()
	r.flight.sample = r.flight.sample && r.d.clk.Now()-r.flight.firstByte <= readAtOnce
	for { // informational replies come before the final one; maxHeaders bounds them together, as in net/http
		resp := &l.resp
		if !l.usual(r.d.wanted) {
			resp, err = http.ReadResponse(l.br, posted)
		}
		switch {
		case err != nil:
			return nil, err
		case resp.StatusCode/100 == 1 && resp.StatusCode != http.StatusSwitchingProtocols:
			continue
		}
		l.left = 1<<63 - 1
		r.ends = resp.Close || resp.ContentLength < 0 && r.flight.manner.closes() || r.d.cfg.Reuse == ReuseNever || resp.StatusCode == http.StatusSwitchingProtocols
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
	if !r.flight.waited() || !r.over || r.ends || l.body.odd || l.br.Buffered() > 0 {
		return l.conn.Close()
	}
	r.d.keep(l)
	return nil
}
