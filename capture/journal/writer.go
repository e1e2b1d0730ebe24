// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package journal

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/moonloop/moonloop/internal/atomicfile"
)

// ErrGone is the error for a journal that was removed or replaced while it was open. Writing to it still succeeds, but the data is lost.
var ErrGone = atomicfile.ErrGone

// ErrTooLarge is the error for a record above [MaxRecord].
var ErrTooLarge = errors.New("record is too large")

// WriterOptions configures a [Writer]. The zero value is usable.
type WriterOptions struct {
	// NoSync leaves it to Sync and Close to make records durable. Otherwise each Append returns after its records are on disk: they survive
	// a crash of the machine, not only of the process.
	NoSync bool
}

// Writer appends records to a journal file, on which it holds an exclusive lock. It is safe for concurrent use.
type Writer struct {
	mu     sync.Mutex
	file   *os.File
	sync   bool
	size   int64
	torn   bool  // the last record may be partial: the last write failed, or an earlier writer may have crashed
	batch  Batch // reused by Append
	old    bool  // the journal is of version 1
	packer packer
	frames []byte // reused by append
}

// keepFrames is the maximum size of frames whose memory is reused.
const keepFrames = 4 << 20

// OpenWriter creates a journal, readable only by its owner, or continues an existing one. A partial last record after a crash is kept, and
// readers count it as torn. A journal that another writer has locked is an error.
func OpenWriter(name string, opt WriterOptions) (*Writer, error) {
	f, err := os.OpenFile(name, os.O_CREATE|os.O_RDWR|os.O_APPEND, 0o600) //nolint:gosec // the user names the journal
	if err != nil {
		return nil, fmt.Errorf("journal cannot be opened: %w", err)
	}
	w := &Writer{file: f, sync: !opt.NoSync}
	if err := w.start(); err != nil {
		return nil, fmt.Errorf("journal %s cannot be written: %w", name, errors.Join(err, f.Close()))
	}
	return w, nil
}

func (w *Writer) start() error {
	if err := atomicfile.Lock(w.file); err != nil {
		return fmt.Errorf("another writer has the file open; give each writer its own file: %w", err)
	}
	head := make([]byte, len(header))
	n, err := w.file.ReadAt(head, 0)
	switch {
	case err != nil && !errors.Is(err, io.EOF):
		return err
	case n < len(header) && beginsHeader(head[:n]):
		// New, or a crash happened before the header was complete.
		if err := w.file.Truncate(0); err != nil {
			return err
		}
		if err := w.write([]byte(header)); err != nil {
			return err
		}
		atomicfile.SyncDir(filepath.Dir(w.file.Name()))
		return w.file.Sync()
	case !isHeader(head):
		return checkHeader(head[:n])
	}
	w.old = string(head) == header1
	info, err := w.file.Stat()
	if err != nil {
		return err
	}
	w.size, w.torn = info.Size(), true
	return w.write(nil)
}

// Append writes records. After an error or a crash, some of them may be in the journal; appending all of them again is harmless, because
// capture.Compile uses each span once. A record above MaxRecord is refused with [ErrTooLarge] before anything is written.
func (w *Writer) Append(records ...Record) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.batch.Reset()
	for i, r := range records {
		if err := w.batch.Add(r); err != nil {
			return fmt.Errorf("record %d, and the records written with it, are not in the journal: %w", i, err)
		}
	}
	return w.append(&w.batch)
}

// AppendBatch writes the records of a batch like [Writer.Append]. It does not change the batch.
func (w *Writer) AppendBatch(b *Batch) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.append(b)
}

func (w *Writer) append(b *Batch) error {
	packer := &w.packer
	if w.old {
		packer = nil
	}
	w.frames = b.appendFrames(w.frames[:0], packer)
	err := w.write(w.frames)
	if cap(w.frames) > keepFrames {
		w.frames = nil
	}
	if err != nil {
		w.packer.reset() // readers cannot find the values of the last records
		return fmt.Errorf("journal %s was not written: %w", w.file.Name(), err)
	}
	return nil
}

// write appends bytes in one call, after a mark if the bytes before may be torn.
func (w *Writer) write(b []byte) error {
	if w.torn {
		// The 0 ends whatever was written before; the mark says that a partial record before it is not damage.
		b = append(appendMark([]byte{0}, kindResume), b...)
	}
	n, err := w.file.Write(b)
	w.size += int64(n)
	w.torn = err != nil
	if err == nil && w.sync {
		err = w.Sync()
	}
	return err
}

// Size returns the size of the journal, in bytes.
func (w *Writer) Size() int64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.size
}

// Sync makes all records so far durable. Others may be appended meanwhile, so one Sync can serve many. It returns [ErrGone] if the journal
// was removed or replaced, so that nobody would find them.
func (w *Writer) Sync() error {
	if err := w.file.Sync(); err != nil {
		return err
	}
	return w.InPlace()
}

// InPlace returns [ErrGone] if the journal was removed or replaced since it was opened.
func (w *Writer) InPlace() error { return atomicfile.InPlace(w.file) }

// Close makes all records durable, like Sync, and closes the file, which releases the lock. A Writer cannot be used after that.
func (w *Writer) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return errors.Join(w.Sync(), w.file.Close())
}
