// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package term

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Comma writes a number with commas between its thousands.
func Comma(n int64) string { return humanize.Comma(n) }

// Counted puts a number before a plural noun, which becomes singular after 1.
func Counted(n int64, noun string) string {
	if n == 1 {
		first, rest, _ := strings.Cut(noun, " of ")
		switch stem, ies := strings.CutSuffix(first, "ies"); {
		case ies:
			noun = stem + "y"
		case first == "stretches":
			noun = "stretch"
		default:
			noun = strings.TrimSuffix(first, "s")
		}
		if rest != "" {
			noun += " of " + rest
		}
	}
	return Comma(n) + " " + noun
}

// Size writes a number of bytes in binary units, such as 1.5 MiB.
func Size(n int64) string { return humanize.IBytes(uint64(max(n, 0))) }

// Share writes a share as a percentage; NaN is unknown.
func Share(x float64) string {
	if math.IsNaN(x) {
		return "unknown"
	}
	return fmt.Sprintf("%.1f %%", 100*x)
}

// Milliseconds writes a number of milliseconds as a duration, such as 1m30s.
func Milliseconds(ms float64) string {
	return (time.Duration(ms*1e3) * time.Microsecond).String()
}

// Duration writes a duration with three digits.
func Duration(d time.Duration) string {
	switch ms := d.Seconds() * 1e3; {
	case ms < 0.1:
		return fmt.Sprintf("%d µs", d.Microseconds())
	case ms < 10:
		return fmt.Sprintf("%.2f ms", ms)
	case ms < 100:
		return fmt.Sprintf("%.1f ms", ms)
	case ms < 1000:
		return fmt.Sprintf("%.0f ms", ms)
	default:
		return fmt.Sprintf("%.2f s", ms/1e3)
	}
}

// Digest shortens a digest to 12 characters, enough for people to compare.
func Digest(d string) string { return d[:min(len(d), 12)] }

// Numbers writes named numbers in the order of their names, such as "lengths 3, text 1,024".
func Numbers(of map[string]int64) string {
	var parts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		parts = append(parts, name+" "+Comma(of[name]))
	}
	return strings.Join(parts, ", ")
}
