// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"
)

// Calls that prepare a run are retried, and bounded as a whole where no total timeout is set.
const (
	apiRetries   = 3
	apiRetryWait = 200 * time.Millisecond
	apiTimeout   = 2 * time.Minute
)

// Get fetches a JSON document into out; the path is as in Request. The call is no part of a replay: it is retried, and
// nothing is measured. A failure is an *Error.
func (c *Client) Get(ctx context.Context, path string, out any) error {
	return c.call(ctx, http.MethodGet, &Request{Path: path}, out)
}

// JSON posts a body and reads the JSON reply into out, otherwise like Get.
func (c *Client) JSON(ctx context.Context, path string, body Body, out any) error {
	return c.call(ctx, http.MethodPost, &Request{Path: path, Body: body}, out)
}

func (c *Client) call(ctx context.Context, method string, req *Request, out any) error {
	limit := apiTimeout
	if c.cfg.TotalTimeout > 0 {
		limit = c.cfg.TotalTimeout
	}
	inner, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	f := &flight{clk: c.clk, http2: c.cfg.HTTP2, guard: guard{clk: c.clk}} // no limits: the context has one
	f.clear()
	resp, err := c.roundTrip(f.in(inner), c.api, method, req)
	var body []byte
	if err == nil {
		body, err = io.ReadAll(io.LimitReader(resp.Body, int64(c.cfg.MaxLine)+1))
		_ = resp.Body.Close()
	}
	fail := func(class Class, name, message string, cause error) error {
		e := &Error{Class: class, Code: Hidden(name, c.secrets), Message: cleaned(message, c.secrets, req.Body, maxServerMessage), Cause: cause}
		if resp != nil {
			e.Status = resp.StatusCode
		}
		return e
	}
	switch {
	case ctx.Err() != nil:
		return fail(ClassCancelled, "", "stopped", context.Cause(ctx))
	case inner.Err() != nil:
		return fail(ClassTotalTimeout, "", fmt.Sprintf("no reply within %v", limit), inner.Err())
	case err != nil:
		e := classify(err, f.tlsFailure(), f.connected())
		if e.Class == ClassTransport {
			if refused := c.refusal(inner); refused != nil {
				return refused
			}
		}
		e.Message = cleaned(e.Message, c.secrets, req.Body, maxMessage)
		return e
	case len(body) > c.cfg.MaxLine:
		return fail(ClassLimit, "", errReplyTooLong.Error(), errReplyTooLong)
	case refusesPlain(resp.StatusCode, body):
		return fail(ClassTLS, "", wantsTLS, nil)
	case resp.StatusCode/100 != 2:
		class := ClassHTTP
		if resp.StatusCode == http.StatusTooManyRequests {
			class = ClassRateLimited
		}
		name, message := complaint(body)
		if message == "" {
			message = http.StatusText(resp.StatusCode)
		}
		return fail(class, name, message, nil)
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fail(ClassProtocol, "", "the reply to "+method+" "+req.Path+" is not the JSON that was expected", err)
	}
	return nil
}
