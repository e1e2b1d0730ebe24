// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"context"
	"errors"
)

// Input is an open file of any format, decompressed.
type Input struct {
	*bufio.Reader        // its buffer holds 64 KiB, so that as much can be peeked at
	Label         string // its name for messages: no user and no query of a URL
	trace         Trace
}

// OpenInput opens what a name stands for like [Open], and gives its decompressed bytes whatever they are: what is converted
// to a trace comes from the same places as a trace. The block size and the limits of lines and ids have no effect.
func OpenInput(ctx context.Context, name string, opt OpenOptions) (*Input, error) {
	in := new(Input)
	var err error
	if in.Reader, in.Label, err = in.trace.source(ctx, name, opt); err != nil {
		return nil, errors.Join(err, in.trace.Close())
	}
	return in, nil
}

// Close closes what was opened and removes what was downloaded. Closing twice has no effect.
func (in *Input) Close() error { return in.trace.Close() }
