// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package mooncake

import (
	"bufio"
	"bytes"
	"cmp"
	"compress/bzip2"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/moonloop/moonloop/internal/parquetrows"
)

// The default limits of [OpenOptions].
const (
	maxDownload     int64 = 64 << 30 // bytes
	maxDecompressed int64 = 1 << 40  // bytes
)

// OpenOptions configures [Open]. The zero value is usable.
type OpenOptions struct {
	Strict    bool // see [ReaderOptions]
	BlockSize int  // tokens per hash id; 0 = from the sidecar, else [BlockSize]
	// FineBlockSize is the number of tokens per id of hash_ranges; 0 = from the sidecar.
	FineBlockSize int
	MaxLine       int // see [ReaderOptions]
	// Unit is the unit of timestamps that are numbers; 0 = from the sidecar, else see [ReaderOptions].
	Unit time.Duration
	Map  Mapping // see [ReaderOptions]

	Reject func(Rejected) error // see [ReaderOptions]

	// MaxDecompressed is the maximum size of an unpacked trace, in bytes. 0 = 1 TiB.
	MaxDecompressed int64
	// MaxDownload is the maximum size of a trace from a URL, in bytes on the wire. 0 = 64 GiB.
	MaxDownload int64
	// TempDir is where a download is kept until Close; "" = the system's folder for such files.
	TempDir string
	// Stdin is the reader for the name "-"; nil = the process's standard input.
	Stdin io.Reader
	// StdinName is what messages call Stdin; "" = standard input.
	StdinName string
}

// Trace is an open trace. It is read through the embedded Reader.
type Trace struct {
	*Reader
	meta  *Meta
	path  string // of the file that it is read from; "" for a pipe
	close []func() error
}

// Open opens a trace: a file, "-" for standard input, or a URL of http, https or a scheme of [RegisterScheme]. A URL is first fetched to a
// temporary file, so a broken connection causes an error and never half a trace. Open recognises gzip, zstd and bzip2 by their content. It
// also recognises a Parquet file and, unless Strict is set, a table (CSV) whose first line names the fields; it reads their rows as if they
// were JSON lines. If there is a sidecar, Open reads it, and requires that it agrees with the given block sizes. The context bounds the
// waiting of Open, for a download or for a pipe's writer. It bounds neither the opening of a file, which waits for nothing, nor reading.
func Open(ctx context.Context, name string, opt OpenOptions) (*Trace, error) {
	t := new(Trace)
	if err := t.open(ctx, name, opt); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

func (t *Trace) open(ctx context.Context, name string, opt OpenOptions) error {
	plain, label, err := t.source(ctx, name, opt)
	if err != nil {
		return err
	}
	if name != "-" && !isURL(name) { // a file, whose sidecar is next to it
		if t.meta, err = LoadMeta(name); err != nil {
			return err
		}
	}
	begins, err := peek(plain)
	table := err == nil && !opt.Strict && begins.what == "" && looksLikeTable(begins.text, opt.Map)
	if table {
		plain = bufio.NewReader(newTableRows(plain, cmp.Or(max(opt.MaxLine, 0), DefaultMaxLine)))
		begins, err = peek(plain)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	said := t.meta.orZero()
	block, fine := cmp.Or(opt.BlockSize, said.BlockSize, BlockSize), cmp.Or(opt.FineBlockSize, said.FineBlockSize)
	if err := cmp.Or(
		errors.Join(contradiction("block size", opt.BlockSize, said.BlockSize),
			contradiction("fine block size", opt.FineBlockSize, said.FineBlockSize),
			contradiction("time unit", UnitName(opt.Unit), said.TimeUnit)),
		checkFine(fine, block),
		begins.mayBeTrace(opt.Strict),
	); err != nil {
		return fmt.Errorf("%s: %w", label, err)
	}
	t.Reader = NewReader(plain, ReaderOptions{
		Name: label, Strict: opt.Strict, BlockSize: block, FineBlockSize: fine, MaxLine: opt.MaxLine, Reject: opt.Reject,
		Unit: cmp.Or(opt.Unit, t.meta.Unit()), Map: opt.Map,
	})
	t.table = table
	return nil
}

// stdinLabel names standard input in messages.
const stdinLabel = "standard input"

// source opens the file or URL and unpacks it. The label is the name for messages.
func (t *Trace) source(ctx context.Context, name string, opt OpenOptions) (plain *bufio.Reader, label string, err error) {
	var src io.Reader
	label = name
	switch {
	case name == "":
		return nil, "", errors.New("no trace given: name a file, a URL, or - for standard input")
	case name == "-":
		label = cmp.Or(opt.StdinName, stdinLabel)
		src = cmp.Or[io.Reader](opt.Stdin, os.Stdin)
	case isURL(name):
		label = PublicName(name)
		var file string
		if open := openerOf(name); open != nil {
			file, err = t.fetchBy(ctx, open, name, opt)
		} else {
			file, err = t.fetch(ctx, name, opt)
		}
		if err == nil {
			src, err = t.file(ctx, file)
		}
	default:
		src, err = t.file(ctx, name)
	}
	if err != nil {
		return nil, label, err
	}
	if plain, err = t.unpack(src, opt); err != nil {
		return nil, label, fmt.Errorf("%s: %w", label, err)
	}
	return plain, label, nil
}

// isURL reports whether a name is a URL that Open fetches.
func isURL(name string) bool {
	scheme, _, found := strings.Cut(name, "://")
	return found && (strings.EqualFold(scheme, "http") || strings.EqualFold(scheme, "https")) || openerOf(name) != nil
}

// Meta returns the trace's sidecar, or nil when it has none.
func (t *Trace) Meta() *Meta { return t.meta }

// Close closes all open files and removes downloads. Closing twice has no effect. No row can be read afterwards, also none that is in memory
// already: Read returns an [fs.ErrClosed], or the error that has ended the reading.
func (t *Trace) Close() error {
	var errs []error
	for _, closer := range slices.Backward(t.close) { // close a file before removing it
		errs = append(errs, closer())
	}
	t.close = nil
	if t.Reader != nil && t.err == nil {
		t.err = fmt.Errorf("%s: the trace was closed before it was read to its end: %w; read all rows before Close", t.opt.Name, fs.ErrClosed)
	}
	return errors.Join(errs...)
}

// file opens a file for reading.
func (t *Trace) file(ctx context.Context, name string) (io.Reader, error) {
	f, err := openFile(ctx, name)
	if err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		if !strings.Contains(name, "://") {
			return nil, fmt.Errorf("the file cannot be opened: %w; name a file that can be read, a URL, or - for standard input", err)
		}
		return nil, fmt.Errorf("%s: it is neither a file nor a URL that can be fetched; name a file, a URL of %s, or - for standard input", PublicName(name), fetched())
	}
	t.close = append(t.close, f.Close)
	info, err := f.Stat()
	if err != nil {
		return nil, fmt.Errorf("the file cannot be opened: %w", err)
	}
	if info.IsDir() {
		return nil, fmt.Errorf("%s is a directory: name a file in it", name)
	}
	if info.Mode().IsRegular() {
		t.path = name
	}
	return f, nil
}

// Checksum reads the whole file of the trace again, and returns a checksum of its bytes. It returns "" if the trace is not a regular
// file, for example a pipe. Files with different bytes have different checksums, unless somebody forged one. It can be called while the
// trace is read, and after Close.
func (t *Trace) Checksum(ctx context.Context) (string, error) {
	if t.path == "" {
		return "", nil
	}
	f, err := os.Open(t.path)
	if err != nil {
		return "", fmt.Errorf("trace cannot be read: %w", err)
	}
	defer func() { _ = f.Close() }() // it was only read
	sum, piece := xxhash.New(), make([]byte, 1<<20)
	for ctx.Err() == nil {
		n, err := f.Read(piece)
		_, _ = sum.Write(piece[:n]) // never fails
		if errors.Is(err, io.EOF) {
			return fmt.Sprintf("xxh64:%016x", sum.Sum64()), nil
		}
		if err != nil {
			return "", fmt.Errorf("trace cannot be read: %w", err)
		}
	}
	return "", fmt.Errorf("trace %s: interrupted while its checksum was taken: %w", PublicName(t.path), context.Cause(ctx))
}

// openFile is os.Open, but ends when the context does: opening a pipe blocks until somebody writes to it.
func openFile(ctx context.Context, name string) (*os.File, error) {
	if info, err := os.Stat(name); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return os.Open(name) //nolint:gosec // the user names the trace
	}
	type opened struct {
		*os.File
		error
	}
	done := make(chan opened, 1)
	go func() {
		f, err := os.Open(name) //nolint:gosec // as above
		done <- opened{f, err}
	}()
	select {
	case o := <-done:
		return o.File, o.error
	case <-ctx.Done():
		go func() {
			if o := <-done; o.error == nil {
				_ = o.Close()
			}
		}()
		return nil, fmt.Errorf("%s: interrupted; nobody writes to the pipe", name)
	}
}

// The first bytes of compressed files.
const (
	gzipMagic  = "\x1f\x8b"
	zstdMagic  = "\x28\xb5\x2f\xfd"
	bzip2Magic = "BZh"
)

// unpack recognises a format by its first bytes. It decompresses the file, or converts the rows of a Parquet file to JSON lines.
func (t *Trace) unpack(src io.Reader, opt OpenOptions) (*bufio.Reader, error) {
	const peek = 64 << 10
	in := bufio.NewReaderSize(src, peek)
	head, err := in.Peek(6)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("cannot be read: %w", err)
	}
	var out io.Reader
	switch {
	case bytes.HasPrefix(head, []byte(gzipMagic)):
		z, err := gzip.NewReader(in)
		if err != nil {
			return nil, fmt.Errorf("damaged gzip: %w; use a complete copy of the file", err)
		}
		out = z
	case bytes.HasPrefix(head, []byte(zstdMagic)):
		// Decode without further goroutines, with a window that bounds the memory.
		z, err := zstd.NewReader(in, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			return nil, fmt.Errorf("damaged zstd: %w; use a complete copy of the file", err)
		}
		t.close = append(t.close, func() error { z.Close(); return nil })
		out = z
	case bytes.HasPrefix(head, []byte(bzip2Magic)):
		out = bzip2.NewReader(in)
	case bytes.HasPrefix(head, []byte(parquetrows.Magic)):
		if out, err = t.parquet(src, in, opt); err != nil {
			return nil, err
		}
	default:
		return in, nil
	}
	limit := cmp.Or(max(opt.MaxDecompressed, 0), maxDecompressed)
	return bufio.NewReaderSize(&bounded{io.LimitedReader{R: out, N: limit + 1}, limit}, peek), nil
}

// parquet reads a Parquet file. Its format needs random access, so a stream is first copied to a temporary file.
func (t *Trace) parquet(src io.Reader, in *bufio.Reader, opt OpenOptions) (io.Reader, error) {
	file, _ := src.(*os.File)
	var size int64
	if file != nil {
		info, err := file.Stat()
		if err != nil {
			return nil, fmt.Errorf("cannot be read: %w", err)
		}
		size = info.Size()
		if !info.Mode().IsRegular() {
			file = nil
		}
	}
	if file == nil {
		kept, err := os.CreateTemp(opt.TempDir, "moonloop-parquet-*")
		if err != nil {
			return nil, fmt.Errorf("a Parquet file from a pipe needs a temporary file: %w; set $TMPDIR to another folder", err)
		}
		t.close = append(t.close, func() error { return errors.Join(kept.Close(), os.Remove(kept.Name())) })
		limit := cmp.Or(max(opt.MaxDownload, 0), maxDownload)
		if size, err = io.Copy(kept, io.LimitReader(in, limit+1)); err != nil {
			return nil, fmt.Errorf("cannot be read: %w", err)
		}
		if size > limit {
			return nil, fmt.Errorf("more than %d bytes: name a file on disk", limit)
		}
		file = kept
	}
	r, err := parquetrows.New(file, size)
	if err != nil {
		return nil, err
	}
	t.close = append(t.close, r.Close)
	return r, nil
}

// bounded returns an error when more than limit bytes are read.
type bounded struct {
	io.LimitedReader
	limit int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.LimitedReader.Read(p)
	if n > 0 && b.N == 0 {
		return n - 1, fmt.Errorf("unpacks to more than %d bytes; decompress it yourself if it is a trace of that size", b.limit)
	}
	return n, err
}

// opening is the beginning of a file.
type opening struct {
	head, text   []byte // text is head without leading blanks and byte order mark
	ended        bool   // head is the whole file
	what, advice string // the kind of file and advice, if it is not text
}

// peek looks at the beginning of a file. Its first line is enough: a pipe may be silent after it.
func peek(r *bufio.Reader) (o opening, err error) {
	const most = 4096
	for line := false; err == nil && !line && len(o.head) < most; {
		if _, err = r.Peek(len(o.head) + 1); err == nil || errors.Is(err, io.EOF) {
			o.head, _ = r.Peek(min(r.Buffered(), most))
			line = bytes.IndexByte(bytes.TrimLeft(bytes.TrimPrefix(o.head, utf8BOM), " \t\r\n"), '\n') >= 0
		}
	}
	if fault, is := errors.AsType[tableFault](err); is {
		return o, fault
	}
	if err != nil && !errors.Is(err, io.EOF) {
		return o, fmt.Errorf("cannot be read: %w; use a complete copy of the file", err)
	}
	o.ended = err != nil
	o.text = bytes.TrimSpace(bytes.TrimPrefix(o.head, utf8BOM))
	o.what, o.advice = foreignTo(o.head)
	return o, nil
}

var utf8BOM = []byte("\xef\xbb\xbf")

// mayBeTrace returns an error if the first bytes show that a file cannot be a trace.
func (o opening) mayBeTrace(strict bool) error {
	switch {
	case o.what != "":
		return fmt.Errorf("not a trace but %s: %s", o.what, cmp.Or(o.advice, "name the trace"))
	case len(o.text) == 0 && o.ended:
		return errors.New("empty: there is no row in it; name another file")
	case len(o.text) == 0, o.text[0] == '{', !strict && strings.IndexByte("[/#", o.text[0]) >= 0:
		return nil
	case o.text[0] == '[':
		return errors.New("a JSON array, not JSON lines: write one row object on each line, or read without strict")
	case o.text[0] == '<':
		return errors.New("a page of HTML or XML, not JSON lines: the address may need a login, or lead to a page about the trace; give the address of the file itself")
	case bytes.IndexByte(o.head, 0) >= 0:
		return errors.New("binary data, not JSON lines: name the trace, or convert it")
	}
	return errors.New("not JSON lines: the first line does not begin with an object; other formats become traces with moonloop convert")
}

// foreignTo recognises a file that is not text by its first bytes, and returns its kind and advice; "" if it may be text.
func foreignTo(head []byte) (what, advice string) {
	for _, magic := range []struct{ prefix, what, advice string }{
		{"PK\x03\x04", "a zip archive", "unpack it"},
		{"\xfd7zXZ", "xz-compressed", "decompress it, or use gzip, zstd or bzip2"},
		{parquetrows.Magic, "a compressed Parquet file", "decompress it; a Parquet file is read as it is"},
		{"\xff\xfe", "UTF-16", "convert it to UTF-8"},
		{"\xfe\xff", "UTF-16", "convert it to UTF-8"},
		{"\x1f\x8b", "compressed twice", "unpack it once"},
		{"\xff\xd8\xff", "a JPEG image", ""},
		{"\x89PNG", "a PNG image", ""},
		{"%PDF", "a PDF document", ""},
	} {
		if bytes.HasPrefix(head, []byte(magic.prefix)) {
			return magic.what, magic.advice
		}
	}
	if utf16Text(head) {
		return "UTF-16 without a byte order mark", "convert it to UTF-8"
	}
	return "", ""
}

// utf16Text reports whether bytes are ASCII in UTF-16, without a mark: every second one is 0, and no other.
func utf16Text(head []byte) bool {
	head = head[:min(len(head), 64)&^1]
	fits := [2]bool{len(head) >= 4, len(head) >= 4} // with the zeros at even positions, and at odd positions
	for i, c := range head {
		fits[0] = fits[0] && (c == 0) == (i%2 == 0)
		fits[1] = fits[1] && (c == 0) == (i%2 == 1)
	}
	return fits[0] || fits[1]
}
