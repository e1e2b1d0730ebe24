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

// Options says what to convert and how. The zero Options is usable.
type Options struct {
	// Format is that of all files; "" is that of the first one, by [Detect].
	Format Format
	// MaxLine is the longest line, in bytes; 0 is [mooncake.DefaultMaxLine].
	MaxLine int
	// Compile is how traces are made. Of public traces only three fields have an effect. BlockSize is a multiple of the format's; 0 is the
	// format's own: 16 for Bailian. The other formats have no ids but with [capture.FormatMooncake]; then 0 is [mooncake.BlockSize]. That
	// Format leaves sessions and models out: rows have the four fields that every tool knows, and where nothing is known of a prompt its
	// blocks have ids that no other has. Tool is for the sidecar.
	Compile capture.Options

	// Annotate is how telemetry is read. Content has no effect, since no text is kept, and BlockSize is that of Compile.
	Annotate annotate.Config

	// To is the format that rows are written in; "" is Mooncake's.
	To Target
	// Meta is the sidecar of a Mooncake trace that is read; nil without one.
	Meta *mooncake.Meta
	// Prompts is for formats that hold prompts, see [Format.Keeps].
	Prompts Prompts
	// Failed is for formats that say which requests failed; of BurstGPT those without response tokens.
	Failed Failed
	// Models are the only models whose requests become rows; none is all. For formats that name the models.
	Models []string
	// FileSessions makes the rows of each file of [Payloads] the turns of one session, with the file's name, where they have none.
	FileSessions bool
	// Lookahead is the number of rows of one file of public traces that are put into order; 0 is DefaultLookahead.
	Lookahead int
}

// Result says what was made, of what, and what was not.
type Result struct {
	capture.Result
	Lines int64 `json:"lines"` // records that were not empty: lines, or objects over several
	// Lost is what was left out of telemetry before there was a trace to count it for. The sidecar of the first trace has it, too.
	Lost []mooncake.Dropped `json:"lost,omitempty"`
}

// Convert makes traces of files of one format through sink: of telemetry, in any order, one for production and one for each replay, else one
// for production with the rows of all files by time. A line that cannot be understood is a *[mooncake.RowError], and the end; but a
// last line of telemetry that breaks off, as a Collector leaves it that is killed, is only counted. That no row comes out is an
// error, too.
//
// Times of several files of public traces have one zero: dates for Azure, the first day for BurstGPT. Files of Bailian begin at the same
// time, and ids and chats of two files are different ones.
func Convert(ctx context.Context, opt Options, sink capture.Sink, files ...capture.Source) (Result, error) {
	if len(files) == 0 {
		return Result{}, errors.New("no file to convert")
	}
	if opt.Format == "" {
		head, err := openHead(files[0])
		if err != nil {
			return Result{}, err
		}
		defer func() { _ = head.Close() }() // also where nothing is read
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

// head is a file whose beginning told its format.
type head struct {
	io.Reader
	format Format
	close  func() error
}

// headSize is the size of a beginning, in bytes.
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

// noRows is the error of files without a row.
func noRows(from string, lost []mooncake.Dropped) error {
	var s strings.Builder
	s.WriteString("no row came out of " + from)
	for _, d := range lost {
		fmt.Fprintf(&s, "; %d %s: %s", d.Count, d.What, d.Reason)
	}
	return errors.New(s.String())
}
