// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package generate

// This file makes a trace of clients that are described by distributions, as in ServeGen's data (data/language/m-small and others). For
// each client, a table chunk-N-trace.csv describes how its requests arrive in each window of time, and chunk-N-dataset.json how long
// prompts and replies are.
//
// The arrivals of a client in a window are a renewal process: gaps have the distribution that the table names, with the mean that gives the
// client's rate. The first gap of a window is the rest of a gap that began before, so that the expected number of requests is the rate
// times the window's length, for every distribution. ServeGen's own generator makes that number of gaps, rounded up, stretches them to the
// window and drops the last one, so clients with less than one request per window have none. It draws all lengths of a request with one
// random number, so that the longest prompt has the longest reply. The files do not say that lengths are related in this way, so here each
// length has its own random number.

import (
	"bytes"
	"cmp"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json/jsontext"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/moonloop/moonloop/internal/heap"
	"github.com/moonloop/moonloop/mooncake"
)

// Clients says what is drawn from a folder of clients. The zero Clients draws everything.
type Clients struct {
	// Seed is the seed of all random numbers: the same seed gives the same rows for the same files, on machines of one architecture.
	Seed uint64 `json:"seed"`
	// Rows ends the trace after this many rows; 0 means no limit.
	Rows int64 `json:"rows,omitempty"`
	// Start and Duration are the part of the data's time that is drawn; Duration 0 means everything from Start on.
	Start    time.Duration `json:"start_ns,omitempty"`
	Duration time.Duration `json:"duration_ns,omitempty"`
	// Rate is the number of requests a second of all clients together, in each window; with 0, each client has its own.
	Rate float64 `json:"rate,omitempty"`
}

// Validate reports everything that is out of range.
func (c *Clients) Validate() error {
	var errs []error
	if c.Rows < 0 {
		errs = append(errs, fmt.Errorf("rows %d: must be 0 or more", c.Rows))
	}
	if c.Start < 0 || c.Start > 100*maxSeconds*time.Second {
		errs = append(errs, fmt.Errorf("start %s: must be between 0 and a hundred years", c.Start))
	}
	if c.Duration < 0 || c.Duration > maxSeconds*time.Second {
		errs = append(errs, fmt.Errorf("duration %s: must be between 0 and a year", c.Duration))
	}
	if !(c.Rate >= 0 && c.Rate <= maxClientRate) {
		errs = append(errs, fmt.Errorf("rate %g: must be between 0 and a million rows per second", c.Rate))
	}
	return errors.Join(errs...)
}

// Drawn says what was drawn.
type Drawn struct {
	Clients  int     // in the folder
	Expected float64 // rows on average, over all seeds
	// Unknown is the number of requests that did not become rows, because their client has no lengths for their time.
	Unknown int64
}

// IsClients reports whether a folder has the files of clients.
func IsClients(folder fs.FS) bool {
	files, err := fs.ReadDir(folder, ".")
	return err == nil && slices.ContainsFunc(files, func(f fs.DirEntry) bool { return clientFiles.MatchString(f.Name()) })
}

// FromClients calls yield for each row drawn from a folder of clients, in order of time. It stops at the first error of yield and returns
// it. Errors of the folder name the file.
func FromClients(c Clients, folder fs.FS, yield func(*mooncake.Row) error) (Drawn, error) {
	if err := c.Validate(); err != nil {
		return Drawn{}, err
	}
	d := &draw{Clients: c, folder: folder, yield: yield, from: c.Start.Seconds(), to: math.Inf(1)}
	if c.Duration > 0 {
		d.to = (c.Start + c.Duration).Seconds()
	}
	err := d.read()
	if err == nil {
		err = d.run()
	}
	d.drawn.Clients = len(d.clients)
	return d.drawn, err
}

// clientFiles matches the names of the tables of arrivals in a folder.
var clientFiles = regexp.MustCompile(`^chunk-(\d{1,9})-trace\.csv$`)

// draw is a trace that is being drawn.
type draw struct {
	Clients

	folder   fs.FS
	yield    func(*mooncake.Row) error
	from, to float64 // s
	clients  []*client
	drawn    Drawn
	rows     int64
	first    float64 // s: when the first row comes
}

// client is one client of the data.
type client struct {
	id      int
	class   string
	windows []window // by time
	lengths lengths  // of the current window

	rng     *rand.Rand
	window  int     // index of the current window; -1 before the first
	at      float64 // of the next request, s from the data's zero
	gap     func() float64
	seconds float64 // per gap, on average
}

// window is a period of time.
type window struct {
	begin, end float64 // s
	rate       float64 // requests a second; 0 means none
	weibull    bool    // else gamma
	shape      float64
}

// The shapes that gaps may have. Those of ServeGen are from 0.007 to 45,230 for gamma, and from 0.15 to 7.9 for Weibull.
const (
	leastGamma, mostGamma     = 1e-3, 1e7
	leastWeibull, mostWeibull = 0.02, 1e3
	maxClientRate             = 1e6 // requests a second
	maxClientFile             = 1 << 28
)

// read reads the tables of all clients.
func (d *draw) read() error {
	files, err := fs.ReadDir(d.folder, ".")
	if err != nil {
		return fmt.Errorf("cannot be read: %w", err)
	}
	for _, f := range files {
		name := clientFiles.FindStringSubmatch(f.Name())
		if name == nil {
			continue
		}
		id, _ := strconv.Atoi(name[1])                                                                               // nine digits at most
		c := &client{id: id, class: "client-" + name[1], window: -1, rng: rand.New(rand.NewPCG(d.Seed, uint64(id)))} //nolint:gosec // no secret; not negative
		if err := c.read(d.folder, f.Name()); err != nil {
			return err
		}
		c.windows = slices.DeleteFunc(c.windows, func(w window) bool { return w.end <= d.from || w.begin >= d.to })
		d.clients = append(d.clients, c)
	}
	slices.SortFunc(d.clients, func(a, b *client) int { return cmp.Compare(a.id, b.id) })
	total := map[float64]float64{}
	for _, c := range d.clients {
		for _, w := range c.windows {
			total[w.begin] += w.rate
		}
	}
	for _, c := range d.clients {
		for i := range c.windows {
			w := &c.windows[i]
			if d.Rate > 0 && w.rate > 0 {
				w.rate *= d.Rate / total[w.begin]
			}
			w.begin, w.end = max(w.begin, d.from), min(w.end, d.to)
			d.drawn.Expected += w.rate * (w.end - w.begin)
		}
	}
	return nil
}

// read reads a client's table: the beginning of a window in s, requests a second, the coefficient of variation of gaps (which the other
// columns also determine), the distribution of gaps, its shape and its scale. A window without a distribution has no requests.
func (c *client) read(folder fs.FS, name string) error {
	f, err := folder.Open(name)
	if err != nil {
		return fmt.Errorf("%s: cannot be opened: %w", name, err)
	}
	defer f.Close() //nolint:errcheck // only read
	r := csv.NewReader(f)
	r.FieldsPerRecord, r.ReuseRecord, r.TrimLeadingSpace = 6, true, true
	for {
		cells, err := r.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return fmt.Errorf("%s: %w; want six columns: time in s, rate, CV, distribution, shape, scale", name, err)
		}
		line, _ := r.FieldPos(0)
		w, err := windowOf(cells)
		switch last := len(c.windows) - 1; {
		case err != nil:
			return &mooncake.RowError{File: name, Line: int64(line), Rule: err.Error(), Advice: "download the file again, or leave its client out of the folder"}
		case last >= 0 && w.begin <= c.windows[last].begin:
			return &mooncake.RowError{File: name, Line: int64(line), Rule: "the time is not after that of the line before", Advice: "sort the lines by their first column"}
		case last >= 0:
			c.windows[last].end = w.begin
		}
		c.windows = append(c.windows, w)
	}
	switch n := len(c.windows); n {
	case 0:
	case 1:
		c.windows[0].end = c.windows[0].begin + usualWindow
	default: // as long as the one before
		c.windows[n-1].end = 2*c.windows[n-1].begin - c.windows[n-2].begin
	}
	return nil
}

// usualWindow is the length of a window in ServeGen's data, in s.
const usualWindow = 600

// windowOf reads a line of a table.
func windowOf(cells []string) (w window, err error) {
	number := func(i int, name string, least, most float64) (v float64) {
		v, e := strconv.ParseFloat(strings.TrimSpace(cells[i]), 64)
		if err == nil && (e != nil || !(v >= least && v <= most)) {
			err = fmt.Errorf("%s %.40q: must be a number from %g to %g", name, cells[i], least, most)
		}
		return v
	}
	w.begin = number(0, "time", 0, 1e10)
	switch strings.TrimSpace(cells[3]) {
	case "":
		return w, err
	case "Gamma":
		w.shape = number(4, "shape", leastGamma, mostGamma)
	case "Weibull":
		w.weibull, w.shape = true, number(4, "shape", leastWeibull, mostWeibull)
	default:
		return w, fmt.Errorf("distribution %.40q: want Gamma or Weibull", cells[3])
	}
	w.rate = number(1, "rate", 0, maxClientRate)
	return w, err
}

// begin advances to the first request of the next window that has one. It returns false after the last window.
func (c *client) begin(folder fs.FS) (bool, error) {
	for c.window++; c.window < len(c.windows); c.window++ {
		w := c.windows[c.window]
		if w.rate <= 0 {
			continue
		}
		left := c.gaps(w)
		if c.at = w.begin + left; c.at < w.end {
			return true, c.lengths.load(folder, c.id, w.begin)
		}
	}
	return false, nil
}

// gaps sets how gaps of a window are drawn, and returns the rest of the gap in which the window begins: a random part of a gap, where
// longer gaps are more likely.
func (c *client) gaps(w window) (left float64) {
	c.seconds = 1 / w.rate
	if !w.weibull {
		gap := distuv.Gamma{Alpha: w.shape, Beta: w.shape, Src: c.rng}
		c.gap = gap.Rand
		gap.Alpha++
		return c.rng.Float64() * gap.Rand() * c.seconds
	}
	mean := math.Gamma(1 + 1/w.shape)
	c.gap = func() float64 { return math.Pow(c.rng.ExpFloat64(), 1/w.shape) / mean }
	long := distuv.Gamma{Alpha: 1 + 1/w.shape, Beta: 1, Src: c.rng}
	return c.rng.Float64() * math.Pow(long.Rand(), 1/w.shape) / mean * c.seconds
}

// next advances to the next request. It returns false after the last one.
func (c *client) next(folder fs.FS) (bool, error) {
	if c.at += c.gap() * c.seconds; c.at < c.windows[c.window].end {
		return true, nil
	}
	return c.begin(folder)
}

// run yields the requests of all clients in order of time.
func (d *draw) run() error {
	due := heap.New(func(a, b *client) bool { return a.at < b.at || a.at == b.at && a.id < b.id })
	for _, c := range d.clients {
		more, err := c.begin(d.folder)
		if err != nil {
			return err
		}
		if more {
			due.Push(c)
		}
	}
	for due.Len() > 0 && (d.Rows == 0 || d.rows < d.Rows) {
		c := *due.First()
		if err := d.row(c); err != nil {
			return err
		}
		more, err := c.next(d.folder)
		switch {
		case err != nil:
			return err
		case more:
			due.FixFirst()
		default:
			due.Pop()
		}
	}
	return nil
}

// row draws the lengths of a client's next request.
func (d *draw) row(c *client) error {
	input, output, known := c.lengths.draw(c.rng)
	if !known {
		d.drawn.Unknown++
		return nil
	}
	if d.rows == 0 {
		d.first = c.at
	}
	d.rows++
	return d.yield(&mooncake.Row{
		Timestamp:   mooncake.Some(math.Round((c.at-d.first)*1e6) / 1e3),
		InputLength: mooncake.Some(max(input, 1)), OutputLength: mooncake.Some(max(output, 1)), Class: c.class,
	})
}

// lengths are the distributions for a client's requests in a period.
type lengths struct {
	since, until float64   // s: the times for which load would return these; the zero lengths are for no time
	parts        [][]share // of the prompt: the text, or each kind of media
	counts       [][]share // the number of each part; nil = one
	output       []share
}

// share is a number with its cumulative probability.
type share struct {
	value int64
	sum   float64
}

// promptParts are the members that describe the parts of a prompt, each with the member for the number of such parts.
var promptParts = [][2]string{
	{"input_tokens", ""}, {"text_tokens", ""}, {"image_tokens", "image_count"}, {"audio_tokens", "audio_count"}, {"video_tokens", "video_count"},
}

// load reads the lengths of the latest period that begins at or before a time and is not empty, unless they are loaded already.
func (l *lengths) load(folder fs.FS, id int, at float64) error {
	if at >= l.since && at < l.until {
		return nil
	}
	name := fmt.Sprintf("chunk-%d-dataset.json", id)
	f, err := folder.Open(name)
	if err != nil {
		return fmt.Errorf("%s: cannot be opened: %w; each chunk-N-trace.csv needs its chunk-N-dataset.json", name, err)
	}
	defer f.Close() //nolint:errcheck // only read
	text, err := io.ReadAll(io.LimitReader(f, maxClientFile+1))
	switch {
	case err != nil:
		return fmt.Errorf("%s: cannot be read: %w", name, err)
	case len(text) > maxClientFile:
		return fmt.Errorf("%s: is larger than 256 MiB, which no client's lengths are", name)
	}
	var best map[string]string
	begin, until := math.Inf(-1), math.Inf(1)
	err = periods(text, func(from float64, fields map[string]string) {
		if from > at {
			until = min(until, from)
		}
		empty := func(field string) bool { text, there := fields[field]; return there && strings.Trim(text, "{} ") == "" }
		if from <= at && from > begin && !empty("input_tokens") && !empty("text_tokens") && !empty("output_tokens") {
			best, begin = fields, from
		}
	})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	*l = lengths{since: at, until: until}
	for _, part := range promptParts {
		tokens, there := best[part[0]]
		if !there {
			continue
		}
		shares, err := sharesOf(tokens)
		var counts []share
		if err == nil && part[1] != "" {
			counts, err = sharesOf(best[part[1]])
		}
		if err != nil {
			return fmt.Errorf("%s: %g: %s: %w", name, begin, part[0], err)
		}
		if len(counts) == 0 && part[1] != "" {
			continue
		}
		l.parts, l.counts = append(l.parts, shares), append(l.counts, counts)
	}
	if l.output, err = sharesOf(best["output_tokens"]); err != nil {
		return fmt.Errorf("%s: %g: output_tokens: %w", name, begin, err)
	}
	return nil
}

// periods calls the function each once for every period in a file: an object whose keys are seconds, each with distributions as texts.
func periods(text []byte, each func(from float64, fields map[string]string)) error {
	dec := jsontext.NewDecoder(bytes.NewReader(text))
	object := func(member func(name string) error) error {
		if k := dec.PeekKind(); k != '{' {
			_, err := dec.ReadToken()
			return cmp.Or(err, errors.New("want an object of seconds, each with an object of distributions"))
		}
		if _, err := dec.ReadToken(); err != nil {
			return err
		}
		for dec.PeekKind() != '}' {
			name, err := dec.ReadToken()
			if err == nil {
				err = member(name.String())
			}
			if err != nil {
				return err
			}
		}
		_, err := dec.ReadToken()
		return err
	}
	return object(func(second string) error {
		from, err := strconv.ParseFloat(second, 64)
		if err != nil {
			return fmt.Errorf("%.40q: want a number of seconds", second)
		}
		fields := map[string]string{}
		err = object(func(name string) error {
			v, err := dec.ReadToken()
			if err == nil && v.Kind() != '"' {
				err = fmt.Errorf("%g: %.40s: want a text such as {9: 0.25, 163: 0.75}", from, name)
			}
			if err == nil {
				fields[name] = v.String()
			}
			return err
		})
		if err == nil {
			each(from, fields)
		}
		return err
	})
}

// sharesOf reads a distribution as Python prints it: {9: 0.25, 163: 0.75}. The shares need not add up to 1.
func sharesOf(text string) (all []share, err error) {
	inner, opened := strings.CutPrefix(strings.TrimSpace(text), "{")
	inner, closed := strings.CutSuffix(inner, "}")
	if text != "" && (!opened || !closed) {
		return nil, fmt.Errorf("%.40q: want a distribution such as {9: 0.25, 163: 0.75}", text)
	}
	if strings.TrimSpace(inner) == "" {
		return nil, nil
	}
	sum := 0.0
	for part := range strings.SplitSeq(inner, ",") {
		value, probability, _ := strings.Cut(part, ":")
		n, wrong := strconv.ParseInt(strings.TrimSpace(value), 10, 64)
		p, err := strconv.ParseFloat(strings.TrimSpace(probability), 64)
		if wrong != nil || n < 0 || n > maxTokens || err != nil || !(p >= 0 && p <= math.MaxFloat32) {
			return nil, fmt.Errorf("%.40q: want a number of tokens, up to %d, and its probability", strings.TrimSpace(part), maxTokens)
		}
		if p > 0 {
			sum += p
			all = append(all, share{n, sum})
		}
	}
	return all, nil
}

// drawFrom draws from a distribution; 0 from an empty one.
func drawFrom(rng *rand.Rand, all []share) int64 {
	if len(all) == 0 {
		return 0
	}
	u := rng.Float64() * all[len(all)-1].sum
	i, _ := slices.BinarySearchFunc(all, u, func(s share, u float64) int {
		if s.sum <= u {
			return -1
		}
		return 1
	})
	return all[min(i, len(all)-1)].value
}

// draw draws the lengths of a request, in tokens. It returns false if none are known.
func (l *lengths) draw(rng *rand.Rand) (input, output int64, known bool) {
	if len(l.parts) == 0 || len(l.output) == 0 {
		return 0, 0, false
	}
	for i, part := range l.parts {
		n := int64(1)
		if l.counts[i] != nil {
			n = drawFrom(rng, l.counts[i])
		}
		for range min(n, mooncake.MaxImages) {
			input += drawFrom(rng, part)
		}
	}
	return min(input, maxTokens), drawFrom(rng, l.output), true
}
