// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Calls that prepare a run are retried and have their own time limits, because nothing is measured yet, and a person waits. Of the timeouts
// of the replay, only a total timeout that is shorter applies to them.
const (
	// LookLimit is the time limit of a Get with all its retries.
	LookLimit = 30 * time.Second
	// CallLimit is the time limit of each attempt of a JSON call; all attempts together have twice as much.
	CallLimit = 2 * time.Minute

	apiRetries    = 3
	lookRetryWait = 200 * time.Millisecond
	callRetryWait = 500 * time.Millisecond
)

// Get fetches a JSON document and decodes it into out. A *[]byte gets the text of any document, and with nil, the document is ignored. The
// path is as in Request. The call is not part of a replay: it is retried if there was no connection and on 429, 503 and 529, and nothing is
// measured. A failure is an *Error.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	limit := until(ctx, c.bound(LookLimit))
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	return c.call(ctx, inner, limit, http.MethodGet, &Request{Path: path}, out)
}

// JSON posts a body, with headers added to the client's own, and reads the reply into out, as Get does. Unlike Get, it is retried on every
// failure that may be temporary, including a missing answer and 5xx.
func (c *Client) JSON(ctx context.Context, path string, header []Field, body Body, out any) error {
	limit := until(ctx, c.bound(CallLimit))
	inner, cancel := context.WithTimeout(ctx, 2*limit)
	defer cancel()
	return c.call(ctx, inner, limit, http.MethodPost, &Request{Path: path, Header: header, Body: body}, out)
}

// bound returns a limit, or the total timeout if that is shorter.
func (c *Client) bound(limit time.Duration) time.Duration {
	return min(limit, cmp.Or(c.cfg.TotalTimeout, limit))
}

// until returns a limit, or the time until the caller's deadline if that is shorter. A deadline counts as a limit, not as a cancellation: a
// call that has not been answered by then fails with a timeout.
func until(ctx context.Context, limit time.Duration) time.Duration {
	if end, bounded := ctx.Deadline(); bounded {
		return min(limit, time.Until(end).Round(10*time.Millisecond)) // the caller's own deadline is exact
	}
	return limit
}

// call makes one call. ctx is the caller's, inner the same with the call's time limit.
func (c *Client) call(ctx, inner context.Context, limit time.Duration, method string, req *Request, out any) error {
	f := &flight{clk: c.clk, manner: &c.manner, http2: c.cfg.HTTP2, guard: guard{clk: c.clk}} // without limits of its own: the context has one
	f.clear()
	via := c.look
	if method == http.MethodPost {
		via = c.api
	}
	resp, err := c.roundTrip(f.in(inner), via, method, req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, int64(c.cfg.MaxLine)+1))
		_ = resp.Body.Close()
	}
	fail := func(class Class, name, message string, cause error) error {
		e := &Error{Class: class, Code: Hidden(name, c.secrets), Message: cleaned(message, c.secrets, req.Body, maxMessage), Cause: cause}
		if resp != nil {
			e.Status = resp.StatusCode
		}
		if n := f.tries(); n > 1 {
			e.Message += fmt.Sprintf(" (tried %d times)", n)
		}
		return e
	}
	var late net.Error
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return fail(ClassCancelled, "", "no answer had come", context.Cause(ctx))
	case err != nil && f.reached() && (errors.As(err, &late) && late.Timeout() || inner.Err() != nil):
		return fail(ClassTotalTimeout, "", fmt.Sprintf("no answer within %v", limit), err)
	case err != nil && inner.Err() != nil:
		return fail(ClassConnectTimeout, "", fmt.Sprintf("no connection within %v", limit), err)
	case err != nil:
		e := f.classify(err)
		if e.Class == ClassTransport {
			if refused := c.alert(inner); refused != nil {
				return refused
			}
		}
		return fail(e.Class, "", e.Message, e.Cause)
	case len(body) > c.cfg.MaxLine:
		return fail(ClassLimit, "", errReplyTooLong.Error(), errReplyTooLong)
	case refusesPlain(resp.StatusCode, body):
		return fail(ClassTLS, "", wantsTLS, nil)
	case resp.StatusCode/100 == 3: // not cut to maxServerMessage, because the text is not the server's
		return fail(ClassHTTP, "", redirected(resp), nil)
	case resp.StatusCode/100 != 2:
		class, name, message := refusal(resp, body)
		return fail(class, name, cleaned(message, c.secrets, req.Body, maxServerMessage), nil)
	case new(chunk).refuses(body):
		name, message, _ := complaint(body)
		return fail(ClassStreamError, name, cleaned(cmp.Or(message, noMessage), c.secrets, req.Body, maxServerMessage), nil)
	case out == nil:
		return nil
	}
	if text, ok := out.(*[]byte); ok {
		*text = body
		return nil
	}
	if err := json.Unmarshal(body, out); err != nil {
		if isPage(resp.Header, body) {
			return fail(ClassProtocol, "", "the reply to "+method+" "+req.Path+" is a web page, not that of an OpenAI-compatible API; "+c.otherURL(), ErrPage)
		}
		return fail(ClassProtocol, "", "the reply to "+method+" "+req.Path+" is not the JSON that was expected", err)
	}
	return nil
}

// ErrPage is the cause of an [Error] about a reply that is a web page instead of an API's. Its message has advice.
var ErrPage = errors.New("a web page")

// isPage reports whether a reply is a web page.
func isPage(header http.Header, body []byte) bool {
	return mediaOf(header) == "text/html" || bytes.HasPrefix(bytes.TrimSpace(body), []byte("<"))
}

// otherURL returns advice about --url, for a server that replied with a web page.
func (c *Client) otherURL() string {
	if p := c.base.Path; p != "" && p != "/" && p != "/v1" && p != "/v1/" {
		return "try --url " + c.base.Scheme + "://" + c.base.Host + ", or the part before /v1 in the API's own examples"
	}
	return "an engine's API often has a different port than its web page; --url is the part before /v1 in the API's own examples, such as " +
		c.base.Scheme + "://" + net.JoinHostPort(c.base.Hostname(), "8000")
}
