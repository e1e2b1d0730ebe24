// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
)

// Input is an open file of any format, decompressed.
type Input struct {
	*bufio.Reader        // its buffer has 64 KiB, so up to that much can be peeked at
	Label         string // its name for messages, without user and query of a URL
	trace         Trace
}

// OpenInput opens a file or URL like [Open], and returns its decompressed bytes in whatever format they are: files to convert come from the
// same sources as traces. The block size and the limits of lines and ids have no effect.
func OpenInput(ctx context.Context, name string, opt OpenOptions) (*Input, error) {
	in := new(Input)
	var err error
	if in.Reader, in.Label, err = in.trace.source(ctx, name, opt); err != nil {
		return nil, errors.Join(err, in.trace.Close())
	}
	return in, nil
}

// Text returns an error that describes the input if its beginning shows that it is not lines of text: an image, an archive, a page of HTML,
// or an encoding other than UTF-8. It consumes nothing of the input.
func (in *Input) Text() error {
	switch o, err := peek(in.Reader); {
	case err != nil:
		return fmt.Errorf("%s: %w", in.Label, err)
	case o.what != "":
		return fmt.Errorf("%s is not text but %s: %s", in.Label, o.what, cmp.Or(o.advice, "name another file"))
	case len(o.text) > 0 && o.text[0] == '<':
		return fmt.Errorf("%s is a page of HTML or XML: the address may need a login, or lead to a page about the data; give the address of the file itself", in.Label)
	case bytes.IndexByte(o.head, 0) >= 0:
		return fmt.Errorf("%s is not text but binary data: name another file; the Collector's file exporter writes what is read here with format: json", in.Label)
	}
	return nil
}

// Meta returns the sidecar that was fetched from next to a URL; nil if there is none, or if the input is no URL. [LoadMeta] reads that of a file.
func (in *Input) Meta() *Meta { return in.trace.meta }

// Close closes what was opened and removes what was downloaded. Closing twice has no effect. The input must not be read afterwards: bytes
// that are in memory already would still come, without an error.
func (in *Input) Close() error { return in.trace.Close() }
