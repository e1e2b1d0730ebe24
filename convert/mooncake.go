// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// Mooncake is an existing trace, to be written for another tool.
const Mooncake Format = "mooncake"

// convertMooncake reads a trace.
func convertMooncake(ctx context.Context, opt Options, sink capture.Sink, files []capture.Source) (result Result, err error) {
	meta := mooncake.Meta{Schema: mooncake.MetaSchema}
	if opt.Meta != nil {
		meta = *opt.Meta
	}
	switch {
	case opt.To == "":
		return Result{}, fmt.Errorf("%s is a Mooncake trace already: replay and inspect read it as it is", files[0].Name)
	case len(files) > 1:
		return Result{}, errors.New("several Mooncake traces: name one; transform joins them")
	case opt.Compile.BlockSize != meta.BlockSize && opt.Compile.BlockSize > 0 && meta.BlockSize > 0:
		return Result{}, fmt.Errorf("block size %d: the trace's sidecar says %d; transform changes it", opt.Compile.BlockSize, meta.BlockSize)
	}
	in, err := files[0].Open()
	if err != nil {
		return Result{}, err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	meta.BlockSize = max(meta.BlockSize, opt.Compile.BlockSize)
	r := mooncake.NewReader(in, mooncake.ReaderOptions{
		Name: files[0].Name, BlockSize: meta.BlockSize, FineBlockSize: meta.FineBlockSize, MaxLine: opt.MaxLine, Unit: meta.Unit(),
	})
	if meta.BlockSize == 0 {
		meta.BlockSize = mooncake.BlockSize
	}
	opt.Compile.BlockSize = meta.BlockSize
	out, err := opt.encoding(sink)(capture.Partition{})
	if err != nil {
		return Result{}, err
	}
	defer func() { _ = out.Close() }() // no effect after Commit
	digester := mooncake.NewDigester(mooncake.CheckOptions{BlockSize: meta.BlockSize, FineBlockSize: meta.FineBlockSize})
	for meta.Rows = 0; ; meta.Rows++ {
		row, err := r.Read()
		switch {
		case errors.Is(err, io.EOF) && meta.Rows == 0:
			return result, nothingIn(namesOf(files), "row", opt.Format)
		case errors.Is(err, io.EOF):
			if err := opt.Meta.CheckRows(meta.Rows); err != nil { // a trace that was cut must not become one that looks complete
				return result, fmt.Errorf("%s: %w", files[0].Name, err)
			}
			meta.Tool, meta.TimeUnit, meta.Digests, meta.Trunk = opt.Compile.Tool, mooncake.UnitName(time.Millisecond), digester.Digests(), digester.Trunk()
			meta.Transformations = append(slices.Clone(meta.Transformations), mooncake.Transformation{
				Name: "convert", Parameters: map[string]any{"from": opt.Format, "files": namesOf(files)}, Effect: "Rows are as they were.",
			})
			result.Lines = meta.Rows
			err := out.Commit(&meta)
			result.Traces = []capture.TraceResult{{Meta: meta}}
			return result, err
		case err != nil:
			return result, err
		case ctx.Err() != nil:
			return result, context.Cause(ctx)
		}
		digester.Add(row, meta.Rows+1)
		if err := out.Write(row); err != nil {
			return result, err
		}
	}
}
