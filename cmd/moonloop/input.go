// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"sync"

	"github.com/moonloop/moonloop/internal/objects"
)

// errInterrupted is the error of reading that was interrupted.
var errInterrupted = errors.New("interrupted")

// openInput opens an object of a store, or a local file. The end of ctx ends any waiting: opening a FIFO waits for a writer, and reading
// waits for data.
func openInput(ctx context.Context, name string) (io.ReadCloser, error) {
	if objects.IsURL(name) {
		return store.Open(ctx, name)
	}
	open := func() (io.ReadCloser, error) { return os.Open(name) } //nolint:gosec // the user names it
	if info, err := os.Stat(name); err != nil || info.Mode().IsRegular() || info.IsDir() {
		return open()
	}
	return interruptible(ctx, open), nil
}

// interruptible returns a reader of the result of open, whose Read ends with ctx. It opens and reads nothing before the first Read: the
// next command of a script may need the same standard input.
func interruptible(ctx context.Context, open func() (io.ReadCloser, error)) io.ReadCloser {
	r, w := io.Pipe()
	context.AfterFunc(ctx, func() { w.CloseWithError(errInterrupted) })
	return &lateReader{r, sync.OnceFunc(func() {
		go func() {
			in, err := open()
			if err == nil {
				_, err = io.Copy(w, in)
				_ = in.Close()
			}
			w.CloseWithError(err) // nil is io.EOF
		}()
	})}
}

// lateReader is a pipe whose writer begins with the first Read.
type lateReader struct {
	*io.PipeReader
	begin func()
}

func (r *lateReader) Read(p []byte) (int, error) {
	r.begin()
	return r.PipeReader.Read(p)
}

// standardInput returns a reader of a command's standard input, which may be silent.
func standardInput(ctx context.Context, in io.Reader) io.Reader {
	return interruptible(ctx, func() (io.ReadCloser, error) { return io.NopCloser(in), nil })
}
