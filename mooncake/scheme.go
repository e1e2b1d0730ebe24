// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

// This file lets traces come from places that a program knows and this package does not, such as an object store: the libraries for these
// are large, and not every importer needs them.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
)

// Opener opens a URL, and returns its size in bytes. If there is nothing at the URL, the error is [fs.ErrNotExist]. The body never ends
// early without an error.
type Opener func(ctx context.Context, url string) (body io.ReadCloser, size int64, err error)

var schemes sync.Map // of Opener, by scheme

// RegisterScheme lets [Open] and [OpenInput] read URLs of a scheme, such as "s3", in the whole program. A later opener for the same scheme
// replaces the earlier one.
func RegisterScheme(scheme string, open Opener) { schemes.Store(strings.ToLower(scheme), open) }

// fetched lists the schemes of the URLs that [Open] fetches, for a message.
func fetched() string {
	names := []string{"http", "https"}
	schemes.Range(func(scheme, _ any) bool {
		names = append(names, scheme.(string)) //nolint:forcetypeassert // nothing else is stored
		return true
	})
	slices.Sort(names)
	last := len(names) - 1
	return strings.Join(names[:last], ", ") + " or " + names[last]
}

// openerOf returns the opener of a URL; nil if there is none.
func openerOf(name string) Opener {
	scheme, _, found := strings.Cut(name, "://")
	if !found {
		return nil
	}
	open, known := schemes.Load(strings.ToLower(scheme))
	if !known {
		return nil
	}
	return open.(Opener) //nolint:forcetypeassert // nothing else is stored
}

// fetchBy copies a trace with an opener to a local file, which exists until the trace is closed, reads its sidecar, and returns the name of
// the file.
func (t *Trace) fetchBy(ctx context.Context, open Opener, name string, opt OpenOptions) (file string, err error) {
	file, err = t.toFile(name, opt, func(f *os.File, limit int64) error { return copyObject(ctx, open, name, f, limit) })
	if err != nil {
		return "", err
	}
	var side bytes.Buffer
	switch err := copyObject(ctx, open, MetaName(name), &side, maxMeta); {
	case errors.Is(err, fs.ErrNotExist):
		return file, nil
	case err != nil:
		return "", err
	}
	if t.meta, err = ReadMeta(&side); err != nil {
		return "", fmt.Errorf("%s: %w", PublicName(MetaName(name)), err)
	}
	return file, nil
}

// copyObject copies everything at a URL, or fails.
func copyObject(ctx context.Context, open Opener, name string, to io.Writer, limit int64) (err error) {
	body, size, err := open(ctx, name)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, body.Close()) }()
	if size > limit {
		return fmt.Errorf("%s was not fetched: larger than the limit of %d bytes", PublicName(name), limit)
	}
	n, err := io.Copy(to, io.LimitReader(body, size+1)) // one more shows that there are more bytes than announced
	if err == nil && n != size {
		err = fmt.Errorf("%s was not fetched: %d of %d bytes came: %w", PublicName(name), n, size, io.ErrUnexpectedEOF)
	}
	return err
}
