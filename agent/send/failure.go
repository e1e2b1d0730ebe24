// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package send

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// complaint reads a server's error in any of its forms: {"error": {…}} or {"error": "…"}, flat, FastAPI's "detail", or plain text. name is
// the server's name for it: a string code, else the type, else the number; if that is an HTTP status, status has it, too.
func complaint(body []byte) (name, message string, status int) {
	var root map[string]any
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	if d.Decode(&root) != nil {
		if text := bytes.TrimSpace(body); bytes.HasPrefix(text, []byte("<")) {
			return "", "the server answered with a page of HTML or XML", 0
		}
		return "", string(body), 0
	}
	e := root
	switch v := root["error"].(type) {
	case map[string]any:
		e = v
	case string:
		message = v
	case nil:
		response, _ := root["response"].(map[string]any)
		if v, ok := response["error"].(map[string]any); ok {
			e = v
		}
	}
	message = cmp.Or(message, firstText(e["message"]), firstText(e["detail"]))
	var number string
	for _, key := range []string{"code", "type", "error_type", "http_status_code"} {
		switch v := e[key].(type) {
		case string:
			if _, err := strconv.Atoi(v); err != nil && name == "" {
				name = code(v)
			} else if number == "" {
				number = code(v)
			}
		case json.Number:
			number = cmp.Or(number, code(v.String()))
		}
	}
	if n, err := strconv.Atoi(number); err == nil && n >= 100 && n < 600 {
		status = n
	}
	return cmp.Or(name, number), message, status
}

// refusal reads a reply whose status is not a success.
func refusal(resp *http.Response, body []byte) (class Class, name, message string) {
	class = ClassHTTP
	if resp.StatusCode == http.StatusTooManyRequests {
		class = ClassRateLimited
	}
	name, message, _ = complaint(body)
	if resp.StatusCode/100 == 3 {
		message = redirected(resp)
	}
	return class, name, cmp.Or(message, http.StatusText(resp.StatusCode))
}

// firstText returns a string, or the message of the first element of a list of errors.
func firstText(v any) string {
	if list, ok := v.([]any); ok && len(list) > 0 {
		v = list[0]
		if m, ok := v.(map[string]any); ok {
			v = m["msg"]
		}
	}
	s, _ := v.(string)
	return s
}

// limitError is the error for a reply that exceeded a limit of ours.
type limitError string

func (e limitError) Error() string { return string(e) }

const (
	errLineTooLong    limitError = "a line or event of the reply is longer than the bound"
	errReplyTooLong   limitError = "the reply is longer than the bound"
	errReplyKept      limitError = "the reply's text is longer than the bound"
	errTooManyCalls   limitError = "the reply makes more than 128 tool calls"
	errTooManyChoices limitError = "the reply has more than 64 choices"
)

var errBadToolCall = errors.New("a tool call of the reply cannot be read")

// classify finds the underlying failure. Our own timeouts and a cancellation by the caller have been excluded before.
func classify(err error, shook error, connected bool) *Error {
	fail := func(c Class, message string) *Error {
		return &Error{Class: c, Message: printable(message, maxMessage), Cause: err}
	}
	inner := err
	if u, ok := errors.AsType[*url.Error](err); ok { // its text contains the URL
		inner = u.Err
	}
	text := inner.Error()
	var (
		dns      *net.DNSError
		op       *net.OpError
		network  net.Error
		record   tls.RecordHeaderError
		limit    limitError
		verified *tls.CertificateVerificationError
	)
	switch {
	case errors.As(err, &limit), strings.Contains(text, "server response headers exceeded"):
		return fail(ClassLimit, text)
	case errors.Is(err, errBadToolCall):
		return fail(ClassProtocol, text)
	case errors.As(err, &dns):
		return fail(ClassDNS, "no address for host "+dns.Name+": "+dns.Err)
	case errors.As(err, &verified):
		return fail(ClassTLS, certificateMessage(verified.Err))
	case errors.As(err, &record), errors.Is(err, http.ErrSchemeMismatch):
		return fail(ClassTLS, "the server does not speak TLS here; is the URL meant to begin with http://?")
	case strings.Contains(text, `malformed HTTP response "\x15\x03`): // an alert of TLS
		return fail(ClassTLS, wantsTLS)
	case strings.Contains(text, "unexpected ALPN protocol"):
		return fail(ClassTLS, "the server does not offer HTTP/2 over TLS; leave --http2 out")
	case errors.As(err, &op) && op.Op == "remote error": // crypto/tls: an alert
		return fail(ClassTLS, alertMessage(op.Err))
	case !connected && errors.As(err, &network) && network.Timeout(), errors.Is(err, syscall.ETIMEDOUT) && !connected:
		return fail(ClassConnectTimeout, text)
	case shook != nil:
		return fail(ClassTLS, "TLS handshake: "+shook.Error())
	case errors.As(err, &op) && op.Op == "dial", !connected:
		return fail(ClassConnect, text)
	case strings.Contains(text, "malformed"), strings.Contains(text, "invalid byte in chunk length"), strings.Contains(text, "unsupported transfer encoding"):
		// net/http quotes the invalid text, which can be anything.
		return fail(ClassProtocol, "the reply is not valid HTTP")
	case errors.Is(err, io.ErrUnexpectedEOF):
		return fail(ClassTransport, "the connection was closed in the middle of the reply")
	case errors.Is(err, io.EOF):
		return fail(ClassTransport, "the connection was closed before the reply began")
	case errors.Is(err, syscall.ECONNRESET):
		return fail(ClassTransport, "the server reset the connection")
	}
	return fail(ClassTransport, text)
}

// redirected returns where a server redirects to: scheme, host and path; the rest of an address can be secret.
func redirected(resp *http.Response) string {
	to, err := resp.Location() // made absolute
	if err != nil {
		return "the server redirects, but does not say where to; is the URL an OpenAI-compatible engine's?"
	}
	to = &url.URL{Scheme: to.Scheme, Host: to.Host, Path: to.Path}
	if from := resp.Request.URL; to.Scheme == from.Scheme && to.Host == from.Host && to.Path == from.Path {
		return "the server redirects " + to.String() + " to itself, a loop: mostly a proxy that wants another scheme or host name, and does not name it; " +
			"correct its configuration, or give the URL of the engine behind it"
	}
	text := "the server redirects to " + to.String() + ", which is not followed: it would get prompts and key; "
	if _, path, ok := strings.Cut(resp.Request.URL.Path, "/v1/"); ok && strings.HasSuffix(to.Path, "/v1/"+path) {
		to.Path = strings.TrimSuffix(to.Path, "/v1/"+path)
		return text + "if that is the engine, give --url " + to.String()
	}
	return text + "give the URL of the engine itself"
}

// wantsTLS is the message for a server that was addressed with plain HTTP and does not accept it.
const wantsTLS = "the server speaks TLS here; is the URL meant to begin with https://?"

// refusesPlain reports whether a reply is that of a TLS server to a request without TLS: Go's, nginx's, Apache's, Jetty's.
func refusesPlain(status int, body []byte) bool {
	text := strings.ToLower(string(body[:min(len(body), 4096)]))
	return status == http.StatusBadRequest && slices.ContainsFunc([]string{
		"http request to an https server", "plain http request was sent to https port", "plain http to an ssl-enabled server", "plain http to a tls",
	}, func(words string) bool { return strings.Contains(text, words) })
}

// alertMessage explains a server's alert, with advice. Go names alerts as RFC 8446, section 6, does.
func alertMessage(alert error) string {
	text := strings.TrimPrefix(alert.Error(), "tls: ")
	switch text {
	case "certificate required":
		return "the server demands a client certificate: give --cert-file and --key-file"
	case "unknown certificate authority":
		return "the server does not trust the authority of the client certificate: give one of an authority that it trusts with --cert-file and --key-file"
	case "expired certificate":
		return "the server finds the client certificate expired: give a new one with --cert-file and --key-file"
	case "bad certificate", "unsupported certificate", "revoked certificate", "unknown certificate", "access denied":
		return "the server does not accept the client certificate, or demands one (" + text + "): give one that it trusts with --cert-file and --key-file"
	case "protocol version not supported":
		return "the server speaks none of the versions of TLS that are still safe, 1.2 and 1.3"
	case "no application protocol":
		return "the server does not offer HTTP/2 over TLS; leave --http2 out"
	case "unrecognized name":
		return "the server knows no host of the name in the URL (" + text + ")"
	}
	return "the server refused the handshake: " + text + " (does it want a client certificate?)"
}

// certificateMessage explains a problem with a certificate, with advice.
func certificateMessage(err error) string {
	var (
		unknown x509.UnknownAuthorityError
		name    x509.HostnameError
		invalid x509.CertificateInvalidError
	)
	switch {
	case errors.As(err, &unknown):
		return "the server's certificate is signed by an unknown authority; if that is yours, give its certificate with --ca-file"
	case errors.As(err, &name):
		return "the server's certificate is for another name: " + name.Error() + "; give the URL by a name that the certificate has"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return "the server's certificate has expired or is not yet valid (" + invalid.Detail + "); the server needs a new one, or this machine's clock is wrong"
	}
	return "the server's certificate: " + err.Error()
}

// hopeless reports whether another attempt makes no sense: certificates do not change quickly, and a connect timeout is a limit.
func hopeless(err error) bool {
	c := classify(err, nil, false).Class
	return c == ClassTLS || c == ClassConnectTimeout || errors.Is(err, context.Canceled)
}
