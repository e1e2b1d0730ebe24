// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package offline

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
)

// file reads a file line by line.
func (c *converter) file(ctx context.Context, file capture.Source, maxLine int) (err error) {
	in, err := file.Open()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	return c.lines(ctx, in, file.Name, maxLine)
}

func (c *converter) lines(ctx context.Context, in io.Reader, name string, maxLine int) error {
	ended := false // the line has its newline
	lines := bufio.NewScanner(in)
	lines.Buffer(make([]byte, 0, min(64<<10, maxLine)), maxLine)
	lines.Split(func(data []byte, atEOF bool) (int, []byte, error) {
		n, line, err := bufio.ScanLines(data, atEOF)
		ended = n > 0 && data[n-1] == '\n'
		return n, line, err
	})
	number := int64(0)
	for lines.Scan() {
		line := lines.Bytes()
		if number++; number == 1 {
			line = bytes.TrimPrefix(line, utf8BOM)
		}
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		c.result.Lines++
		read := c.otlpLine
		if c.format == Dynamo {
			read = c.dynamoLine
		}
		err := read(line)
		fault, bad := errors.AsType[*mooncake.RowError](err)
		switch {
		case err == nil:
		case !bad:
			return err
		case !ended && errors.Is(fault, io.ErrUnexpectedEOF):
			c.lose("lines", "the last one breaks off", 1)
		default:
			at := *fault
			at.File, at.Line = name, number
			return &at
		}
	}
	switch err := lines.Err(); {
	case err == nil:
		return nil
	case errors.Is(err, bufio.ErrTooLong):
		return &mooncake.RowError{File: name, Line: number + 1, Rule: "the line is too long", Advice: "raise the line limit, or let the exporter write smaller batches", Err: err}
	default:
		return fmt.Errorf("%s:%d: the file cannot be read to its end: %w", name, number+1, err)
	}
}
