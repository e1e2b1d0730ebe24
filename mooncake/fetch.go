// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-retryablehttp"
)

const (
	fetchAttempts = 3 // maximum number of downloads of a file, if they break off
	fetchRetries  = 3 // maximum number of retries of the request for each of them

	fetchRedirects = 10 // maximum number of redirects of a request
)

// fetch downloads a trace to a temporary file, which exists until the trace is closed, reads its sidecar, and returns the name of the file.
func (t *Trace) fetch(ctx context.Context, name string, opt OpenOptions) (file string, err error) {
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return "", fmt.Errorf("%s is not a URL with a host: want http://host/trace.jsonl, or https", PublicName(name))
	}
	client := newFetchClient()
	defer client.HTTPClient.CloseIdleConnections()
	file, err = t.toFile(name, opt, func(f *os.File, limit int64) error { return download(ctx, client, u, f, limit) })
	if err != nil {
		return "", err
	}
	t.meta, err = fetchMeta(ctx, client, *u)
	return file, err
}

// toFile makes a temporary file, has write fill it with at most limit bytes, and returns the file's name. The file exists until the trace
// is closed.
func (t *Trace) toFile(name string, opt OpenOptions, write func(f *os.File, limit int64) error) (file string, err error) {
	f, err := os.CreateTemp(opt.TempDir, "moonloop-trace-*")
	if err != nil {
		return "", fmt.Errorf("no temporary file for %s: %w; set $TMPDIR to another folder", PublicName(name), err)
	}
	t.close = append(t.close, func() error { return os.Remove(f.Name()) })
	return f.Name(), errors.Join(write(f, cmp.Or(max(opt.MaxDownload, 0), maxDownload)), f.Close())
}

func newFetchClient() *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil // it logs whole URLs
	c.RetryMax = fetchRetries
	c.RetryWaitMin, c.RetryWaitMax = 200*time.Millisecond, 5*time.Second
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	c.HTTPClient.CheckRedirect = func(req *http.Request, via []*http.Request) error {
		if len(via) >= fetchRedirects {
			return fmt.Errorf("stopped after %d redirects", fetchRedirects) // which the library does not retry
		}
		req.Header.Del("Referer") // it has the query, which may carry a signature that is not for the next server
		return nil
	}
	if tr, ok := c.HTTPClient.Transport.(*http.Transport); ok {
		tr.DisableCompression = true // only the bytes as sent can be compared with a length
		tr.ResponseHeaderTimeout = time.Minute
	}
	return c
}

// download writes the whole body to the file, or fails.
func download(ctx context.Context, client *retryablehttp.Client, u *url.URL, to *os.File, limit int64) error {
	for attempt := 1; ; attempt++ {
		res, err := get(ctx, client, u) //nolint:bodyclose // copyBody closes it
		if err != nil {
			return err
		}
		if err = copyBody(to, res, limit); err == nil {
			return nil
		}
		if _, final := errors.AsType[*finalError](err); final || ctx.Err() != nil || attempt == fetchAttempts {
			return fmt.Errorf("%s was not fetched: %w%s", PublicName(u.String()), err, otherTool)
		}
		if _, err := to.Seek(0, io.SeekStart); err != nil {
			return err
		}
		if err := to.Truncate(0); err != nil {
			return err
		}
	}
}

// finalError is an error that another attempt would not fix.
type finalError struct{ error }

// statusError is an answer with a status other than 200.
type statusError struct {
	error
	status int
}

// statusAdvice is advice for a known problem of the server.
var statusAdvice = map[int]string{
	http.StatusNotFound:     "; check the address",
	http.StatusGone:         "; check the address",
	http.StatusUnauthorized: needsPermission,
	http.StatusForbidden:    needsPermission,
}

const needsPermission = "; it needs a permission that the address does not carry: " +
	"sign it, or download the trace with another tool"

// otherTool is advice for an unknown problem of the server.
const otherTool = "; check the address, or download the trace with another tool and name the file"

func get(ctx context.Context, client *retryablehttp.Client, u *url.URL) (*http.Response, error) {
	name := PublicName(u.String())
	req, err := retryablehttp.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("%s is not a URL that can be fetched", name)
	}
	res, err := client.Do(req)
	if err != nil {
		if ue, ok := errors.AsType[*url.Error](err); ok {
			err = ue.Err // without the URL, which may carry a signature
		}
		return nil, fmt.Errorf("%s was not fetched: %w%s", name, err, otherTool)
	}
	framed := res.ProtoMajor >= 2 || slices.Contains(res.TransferEncoding, "chunked")
	switch status := res.StatusCode; {
	case status != http.StatusOK:
		err = &statusError{fmt.Errorf("%s was not fetched: the server answered %d %s%s",
			name, status, http.StatusText(status), cmp.Or(statusAdvice[status], otherTool)), status}
	case res.ContentLength < 0 && !framed:
		err = fmt.Errorf("%s was not fetched: the server does not say how long the trace is, "+
			"so a cut could not be told from its end; download it with another tool", name)
	default:
		return res, nil
	}
	_ = res.Body.Close()
	return nil, err
}

// copyBody copies a whole body and closes it. If the server did not announce its length (ContentLength is -1), the framing shows where it
// ends.
func copyBody(w io.Writer, res *http.Response, limit int64) error {
	defer func() { _ = res.Body.Close() }()
	tooLarge := &finalError{fmt.Errorf("larger than the limit of %d bytes", limit)}
	if res.ContentLength > limit {
		return tooLarge
	}
	n, err := io.Copy(w, io.LimitReader(res.Body, limit+1))
	switch {
	case n > limit:
		return tooLarge
	case err != nil:
		return fmt.Errorf("broke off after %d bytes: %w", n, err)
	case res.ContentLength >= 0 && n != res.ContentLength:
		return fmt.Errorf("%d bytes came, %d were announced: %w", n, res.ContentLength, io.ErrUnexpectedEOF)
	}
	return nil
}

// fetchMeta downloads the sidecar next to a trace, if there is one. A server that answers every request with a page has no sidecar.
func fetchMeta(ctx context.Context, client *retryablehttp.Client, u url.URL) (*Meta, error) {
	u.Path, u.RawPath = MetaName(u.Path), ""
	res, err := get(ctx, client, &u) //nolint:bodyclose // likewise
	if err != nil {
		if status, ok := errors.AsType[*statusError](err); ok && status.status < http.StatusInternalServerError {
			return nil, nil
		}
		return nil, err
	}
	var data bytes.Buffer
	if err := copyBody(&data, res, maxMeta); err != nil {
		return nil, fmt.Errorf("%s was not fetched: %w", PublicName(u.String()), err)
	}
	if !bytes.HasPrefix(bytes.TrimSpace(data.Bytes()), []byte("{")) {
		return nil, nil
	}
	m, err := ReadMeta(&data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", PublicName(u.String()), err)
	}
	return m, nil
}

// PublicName returns the part of a name that may be shown. For a file, this is the whole path. For a URL, it is the URL without the user
// and the query, which can contain keys and signatures.
func PublicName(name string) string {
	if !strings.Contains(name, "://") {
		return name
	}
	u, err := url.Parse(name)
	if err != nil {
		return "the URL"
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}
