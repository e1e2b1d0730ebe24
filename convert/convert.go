// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package convert

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"

	"github.com/moonloop/moonloop/capture"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/receiver/annotate"
)

// Options configures [Convert]. The zero Options is usable.
type Options struct {
	// Format is the format of all files; "" = that of the first one, by [Detect].
	Format Format
	// MaxLine is the maximum length of a line, in bytes; 0 = [mooncake.DefaultMaxLine].
	MaxLine int
	// Compile configures the traces. For public traces, only BlockSize, Format and Tool have an effect. BlockSize must be a multiple of the
	// format's; 0 = that of the first row with ids, else the format's, else, with [capture.FormatMooncake], [mooncake.BlockSize]. A format
	// without ids refuses a BlockSize, except with [capture.FormatMooncake]. With that Format, sessions and models are left out: rows have
	// the four fields that every tool knows, and blocks of unknown prompts have unique ids. Tool is for the sidecar.
	Compile capture.Options

	// Annotate configures how telemetry is read. Its Content has no effect, because no text is kept, and BlockSize is that of Compile.
	Annotate annotate.Config

	// To is the format of the output; "" = Mooncake's.
	To Target
	// Meta is the sidecar of the Mooncake trace that is read; nil if there is none.
	Meta *mooncake.Meta
	// Prompts is for formats with prompts, see [Format.Keeps].
	Prompts Prompts
	// Failed says what happens to failed requests, in formats that have them; for BurstGPT, these are requests without response tokens.
	Failed Failed
	// Models are the models whose requests become rows; empty = all. Only for formats with models.
	Models []string
	// FileSessions makes the rows of each file of [Payloads] the turns of one session, with the file's name, if they have no session.
	FileSessions bool
	// Lookahead is the number of rows of one file of public traces that are read ahead and sorted; 0 = [DefaultLookahead].
	Lookahead int
}

// Result describes the resulting traces, their sources, and what was left out.
type Result struct {
	capture.Result
	Lines int64 `json:"lines"` // records that were not empty: lines, or JSON objects over several lines
	// Lost is telemetry that was left out before there was a trace to count it. The sidecar of the first trace has it, too.
	Lost []mooncake.Dropped `json:"lost,omitempty"`
}

// Convert converts files of one format to traces and writes them through sink. From telemetry, it makes one trace for production and one
// for each replay, in any order; from other formats, one for production with the rows of all files by time. At a line that it
// cannot understand, it stops with a *[mooncake.RowError]. Only an incomplete last line of telemetry, as a killed Collector leaves it, is
// counted instead. If there is no row, it returns an error, too.
//
// The times in several files of public traces have a common zero: Azure's are dates, BurstGPT's are seconds since a day 0. Files of Bailian
// are taken to begin at the same time, and their ids and chats are unrelated.
func Convert(ctx context.Context, opt Options, sink capture.Sink, files ...capture.Source) (Result, error) {
	if len(files) == 0 {
		return Result{}, errors.New("no file to convert")
	}
	if opt.Format == "" {
		head, err := openHead(files[0])
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = head.Close() }() // also if nothing is read
		opt.Format, files = head.format, slices.Concat([]capture.Source{{Name: files[0].Name, Open: head.open}}, files[1:])
	}
	if _, err := ParseFormat(string(opt.Format)); err != nil {
		return Result{}, err
	}
	if opt.MaxLine < 0 {
		return Result{}, fmt.Errorf("longest line %d: must be above 0", opt.MaxLine)
	}
	opt.MaxLine = cmp.Or(opt.MaxLine, mooncake.DefaultMaxLine)
	switch s := opt.Format.spec(); {
	case opt.To != "" && opt.To.target() == nil:
		return Result{}, fmt.Errorf("target %.40q: want one of %v", string(opt.To), Targets())
	case opt.To != "" && opt.plain():
		return Result{}, errors.New("the format of four fields and a target: choose one of them")
	case opt.Format == Mooncake:
		return convertMooncake(ctx, opt, sink, files)
	case opt.Prompts != "" && opt.Prompts != PromptsHash && opt.Prompts != PromptsKeep:
		return Result{}, fmt.Errorf("prompts %.20q: want %s or %s", string(opt.Prompts), PromptsHash, PromptsKeep)
	case opt.Prompts == PromptsKeep && !opt.Format.Keeps():
		return Result{}, fmt.Errorf("prompts: %s files hold none that could be kept", opt.Format)
	case s != nil && s.verbatim && opt.Prompts != PromptsKeep:
		return Result{}, fmt.Errorf("%s files hold prompts and do not say how many tokens these have: --prompts %s keeps the prompts, which are then in the trace as they are", opt.Format, PromptsKeep)
	}
	if opt.Format.Telemetry() && opt.Prompts != PromptsKeep {
		return convertTelemetry(ctx, opt, sink, files)
	}
	return convertPublic(ctx, opt, sink, files)
}

// head is a file whose format was detected from its beginning.
type head struct {
	io.Reader
	format Format
	close  func() error
}

// headSize is the maximum size of the beginning from which a format is detected, in bytes.
const headSize = 64 << 10

func openHead(file capture.Source) (*head, error) {
	in, err := file.Open()
	if err != nil {
		return nil, err
	}
	r := bufio.NewReaderSize(in, headSize)
	begin, err := r.Peek(headSize)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(fmt.Errorf("%s: cannot be read: %w", file.Name, err), in.Close())
	}
	format, err := Detect(file.Name, begin)
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	return &head{r, format, sync.OnceValue(in.Close)}, nil
}

func (h *head) open() (io.ReadCloser, error) { return h, nil }

// Close closes the file, once.
func (h *head) Close() error { return h.close() }

func namesOf(files []capture.Source) (names []string) {
	for _, file := range files {
		names = append(names, file.Name)
	}
	return names
}

// noRows returns the error for files without a row: what was left out, and advice.
func noRows(from string, lost []mooncake.Dropped, advice string) error {
	var s strings.Builder
	s.WriteString("no row could be made from " + from)
	for _, d := range lost {
		fmt.Fprintf(&s, "; %d %s: %s", d.Count, d.What, d.Reason)
	}
	return fmt.Errorf("%s; %s", s.String(), advice)
}

// nothingIn returns the error for files that have nothing of what rows are made from.
func nothingIn(names []string, what string, format Format) error {
	return noRows(fmt.Sprintf("%s: there is no %s in it", strings.Join(names, ", "), what), nil,
		fmt.Sprintf("name a file that has some, or another format than %s (--from)", format))
}
