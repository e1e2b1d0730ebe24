// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"errors"
	"fmt"
	"regexp"
	"time"

	"github.com/moonloop/moonloop/capture"
)

// Defaults of [Options].
const (
	DefaultMaxBytes = 256 << 20
	DefaultMaxAge   = time.Hour
	DefaultGrace    = time.Minute
)

// MaxGrace is the longest grace period.
const MaxGrace = time.Hour

// Options configures a [Journal]. Directory and Name are required; the rest may be zero.
type Options struct {
	Directory string // created with mode 0700 if it does not exist
	Name      string // beginning of the name of each file; only one Journal at a time can use a name in a directory

	// MaxBytes is the size at which a segment is closed. 0 = DefaultMaxBytes. A segment that will be compiled lasts at least a grace
	// period, even if it reaches the size earlier.
	MaxBytes int64
	// MaxAge is the age at which a segment with records is closed; 0 = never. If it divides a day, segments end at its multiples since
	// midnight UTC. It should be longer than the grace period, because compiling a segment reads all that were written within its grace
	// period.
	MaxAge time.Duration
	// Grace is the time from the end of a segment until it is compiled, and the maximum time between the records of one request for its
	// row to have the values of all; at most MaxGrace. With 0, records in other segments are ignored.
	Grace time.Duration
	// NoSync leaves records to the operating system until their segment is closed.
	NoSync bool

	// Compile configures the compilation of closed segments; nil = none. Before, After and, if it is empty, TempDir are set by this
	// package.
	Compile *capture.Options
	// Retention says what is removed.
	Retention Retention

	// Observer is notified of events; may be nil.
	Observer Observer
}

// Retention limits the files of closed segments, journals and traces. The zero Retention keeps everything. It is applied when a segment is
// closed or compiled, oldest first.
type Retention struct {
	MaxBytes int64 // of all segments, including the open one; 0 = no limit
	// MaxAge is how long a segment is kept after it was closed; 0 = no limit. Setting the clock while the process runs has no effect. At
	// the start, the age of segments of earlier processes is their difference from the newest of them.
	MaxAge time.Duration
}

var validName = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,99}$`)

// Validate returns an error about the options.
func (o *Options) Validate() error {
	switch {
	case o.Directory == "":
		return errors.New("directory is missing: name the folder for journals and traces")
	case !validName.MatchString(o.Name):
		return fmt.Errorf("name %q must be 1 to 100 letters, digits, '.', '_' and '-', not beginning with '.' or '-': it begins the names of files", o.Name)
	case o.MaxBytes < 0:
		return fmt.Errorf("size of a segment is %d bytes: it must be above 0, or 0 for %d", o.MaxBytes, DefaultMaxBytes)
	case o.MaxAge < 0 || o.MaxAge > 0 && o.MaxAge < time.Second:
		return fmt.Errorf("age of a segment is %v: it must be a second or more, or 0 for no limit", o.MaxAge)
	case o.Grace < 0 || o.Grace > MaxGrace:
		return fmt.Errorf("grace period is %v: it must be between 0 and %v", o.Grace, MaxGrace)
	case o.Retention.MaxBytes < 0 || o.Retention.MaxAge < 0:
		return fmt.Errorf("retention of %d bytes and %v: neither may be below 0, and 0 means no limit", o.Retention.MaxBytes, o.Retention.MaxAge)
	}
	return nil
}

// end returns when a segment that began at this time is closed; zero = never.
func (o *Options) end(begun time.Time) time.Time {
	switch {
	case o.MaxAge == 0:
		return time.Time{}
	case 24*time.Hour%o.MaxAge == 0:
		return begun.UTC().Truncate(o.MaxAge).Add(o.MaxAge)
	}
	return begun.Add(o.MaxAge)
}
