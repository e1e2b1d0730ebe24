// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bytes"
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

// fetchAttempts is how often a download is begun anew when it breaks off.
const fetchAttempts = 3

// fetchTrace brings a trace and its sidecar here. The returned function removes the file.
func fetchTrace(ctx context.Context, name string, opt OpenOptions) (file string, meta *Meta, remove func() error, err error) {
	u, err := url.Parse(name)
	if err != nil || u.Host == "" {
		return "", nil, nil, fmt.Errorf("%s is not a URL with a host: want http://host/trace.jsonl, or https", PublicName(name))
	}
	limit := opt.MaxDownload
	if limit <= 0 {
		limit = DefaultMaxDownload
	}
	client := newFetchClient()
	defer client.HTTPClient.CloseIdleConnections()

	tmp, err := os.CreateTemp(opt.TempDir, "moonloop-trace-*")
	if err != nil {
		return "", nil, nil, fmt.Errorf("no temporary file for %s: %w", PublicName(name), err)
	}
	remove = func() error { return os.Remove(tmp.Name()) }
	err = errors.Join(download(ctx, client, u, tmp, limit), tmp.Close())
	if err == nil {
		meta, err = fetchMeta(ctx, client, *u)
	}
	if err != nil {
		return "", nil, nil, errors.Join(err, remove())
	}
	return tmp.Name(), meta, remove, nil
}

func newFetchClient() *retryablehttp.Client {
	c := retryablehttp.NewClient()
	c.Logger = nil // it logs whole URLs
	c.RetryMax = fetchAttempts
	c.RetryWaitMin, c.RetryWaitMax = 200*time.Millisecond, 5*time.Second
	c.ErrorHandler = retryablehttp.PassthroughErrorHandler
	if tr, ok := c.HTTPClient.Transport.(*http.Transport); ok {
		tr.DisableCompression = true // a length can be verified on the bytes that were sent only
		tr.ResponseHeaderTimeout = time.Minute
	}
	return c
}

// download writes the whole body to the file or fails.
func download(ctx context.Context, client *retryablehttp.Client, u *url.URL, to *os.File, limit int64) error {
	for attempt := 1; ; attempt++ {
		body, err := get(ctx, client, u)
		if err != nil {
			return err
		}
		err = body.copyTo(to, limit)
		_ = body.Close()
		if err == nil {
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

// finalError is an error that another attempt cannot mend.
type finalError struct{ error }

// response is a body with the length that was announced for it; -1 when the framing itself tells where it ends.
type response struct {
	io.ReadCloser
	length int64
}

// statusError is an answer that is not a trace.
type statusError struct {
	name   string
	status int
}

func (e *statusError) Error() string {
	advice := otherTool
	switch e.status {
	case http.StatusNotFound, http.StatusGone:
		advice = "; check the address"
	case http.StatusUnauthorized, http.StatusForbidden:
		advice = "; it needs a permission that the address does not carry: sign it, or download the trace with another tool"
	}
	return fmt.Sprintf("%s was not fetched: the server answered %d %s%s", e.name, e.status, http.StatusText(e.status), advice)
}

// otherTool is the advice where it is not known what the server wants.
const otherTool = "; check the address, or download the trace with another tool and name the file"

func get(ctx context.Context, client *retryablehttp.Client, u *url.URL) (*response, error) {
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
	if res.StatusCode != http.StatusOK {
		_ = res.Body.Close()
		return nil, &statusError{name, res.StatusCode}
	}
	framed := res.ProtoMajor >= 2 || slices.Contains(res.TransferEncoding, "chunked")
	if res.ContentLength < 0 && !framed {
		_ = res.Body.Close()
		return nil, fmt.Errorf("%s was not fetched: the server does not say how long the trace is, so a cut could not be told from its end; download it with another tool", name)
	}
	return &response{res.Body, res.ContentLength}, nil
}

func (r *response) copyTo(w io.Writer, limit int64) error {
	tooLarge := &finalError{fmt.Errorf("larger than the limit of %d bytes", limit)}
	if r.length > limit {
		return tooLarge
	}
	n, err := io.Copy(w, io.LimitReader(r, limit+1))
	switch {
	case n > limit:
		return tooLarge
	case err != nil:
		return fmt.Errorf("broke off after %d bytes: %w", n, err)
	case r.length >= 0 && n != r.length:
		return fmt.Errorf("%d bytes came, %d were announced: %w", n, r.length, io.ErrUnexpectedEOF)
	}
	return nil
}

// fetchMeta gets the sidecar that may lie beside a trace. A server that has none, or answers everything with a page, has
// no sidecar.
func fetchMeta(ctx context.Context, client *retryablehttp.Client, u url.URL) (*Meta, error) {
	u.Path, u.RawPath = MetaName(u.Path), ""
	body, err := get(ctx, client, &u)
	if err != nil {
		if status, ok := errors.AsType[*statusError](err); ok && status.status < http.StatusInternalServerError {
			return nil, nil
		}
		return nil, err
	}
	defer func() { _ = body.Close() }()
	var data bytes.Buffer
	if err := body.copyTo(&data, maxMeta); err != nil {
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

// PublicName returns what of a name may be shown: all of a path, and of a URL no user and no query, where keys and
// signatures are.
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
