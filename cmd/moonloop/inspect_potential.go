// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/pflag"

	"github.com/moonloop/moonloop/internal/term"
	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/mooncake/stats"
)

// potentialOptions are the flags of inspect --mrc: what caches of all sizes would hit.
type potentialOptions struct {
	on            bool
	sizes         []string
	bytesPerToken int64
	modelConfig   string
	sample        float64
	warmUp        time.Duration
}

// fewSampled is the number of blocks below which a sample is not reliable.
const fewSampled = 1000

func (opt *potentialOptions) flags(f *pflag.FlagSet) {
	add(f, &opt.on, "mrc", false)
	sizes := reads("sizes with commas between: numbers of tokens such as 500k or 4M, or memory such as 40GiB", parseCacheSizes)
	listVar(f, &opt.sizes, "cache-sizes", sizes)
	add(f, &opt.bytesPerToken, "kv-bytes-per-token", 0, whole(1, stats.MaxKVBytesPerToken))
	add(f, &opt.modelConfig, "model-config", "", aFile)
	add(f, &opt.sample, "sample", 0, that("a share above 0, up to 1", func(value string) error {
		p, err := parseFloat(value)
		return errors.Join(err, wrongUnless(p > 0 && p <= 1))
	}))
	add(f, &opt.warmUp, "warm-up", 0)
}

// check returns an error for a flag that has no effect without --mrc, and for flags that cannot be given with --mrc, or not together.
func (opt *potentialOptions) check(f *pflag.FlagSet) error {
	if opt.on {
		switch {
		case f.Changed("capacity"):
			return errors.New("--capacity: with --mrc, the sizes of caches are --cache-sizes, in tokens or bytes; leave one out")
		case opt.bytesPerToken != 0 && opt.modelConfig != "":
			return errors.New("--kv-bytes-per-token and --model-config both set the bytes per token; leave one out")
		}
		return nil
	}
	for _, name := range []string{"cache-sizes", "kv-bytes-per-token", "model-config", "sample", "warm-up"} {
		if f.Changed(name) {
			return fmt.Errorf("--%s: has no effect without --mrc; give both or neither", name)
		}
	}
	return nil
}

// options returns the options of the analysis; nil without --mrc.
func (opt *potentialOptions) options(ctx context.Context) (*stats.PotentialOptions, error) {
	if !opt.on {
		return nil, nil //nolint:nilnil // nothing is asked for
	}
	out := &stats.PotentialOptions{BytesPerToken: opt.bytesPerToken, Sample: opt.sample, WarmUp: float64(opt.warmUp) / float64(time.Millisecond)}
	if opt.modelConfig != "" {
		f, err := openInput(ctx, opt.modelConfig)
		if err != nil {
			return nil, fmt.Errorf("--model-config: %s: %s; want the config.json of a model", opt.modelConfig, reason(err))
		}
		defer f.Close() //nolint:errcheck // it was only read
		if out.BytesPerToken, err = stats.KVBytesOfConfig(f, 0); err != nil {
			return nil, fmt.Errorf("--model-config: %s: %w (--kv-bytes-per-token)", opt.modelConfig, err)
		}
	}
	if len(opt.sizes) == 0 {
		return out, nil
	}
	sizes, err := parseCacheSizes(strings.Join(opt.sizes, ","))
	if err != nil {
		return nil, fmt.Errorf("--cache-sizes: %w", err)
	}
	for _, size := range sizes {
		if size.bytes > 0 {
			if out.BytesPerToken == 0 {
				return nil, errors.New("--cache-sizes: how many tokens a size in bytes holds depends on the model: " +
					"give --kv-bytes-per-token or --model-config, or sizes in tokens")
			}
			size.tokens = math.Floor(size.bytes / float64(out.BytesPerToken))
		}
		if size.tokens < 1 {
			return nil, fmt.Errorf("--cache-sizes: %s is less than one token", humanize.IBytes(uint64(size.bytes)))
		}
		out.Sizes = append(out.Sizes, size.tokens)
	}
	return out, nil
}

// cacheSize is a size in --cache-sizes, in tokens or in bytes.
type cacheSize struct{ tokens, bytes float64 }

// parseCacheSizes reads sizes such as 500k,4M,40GiB.
func parseCacheSizes(text string) (list []cacheSize, err error) {
	for s := range strings.SplitSeq(text, ",") {
		if s = strings.TrimSpace(s); strings.HasSuffix(strings.ToLower(s), "b") {
			n, bad := humanize.ParseBytes(s)
			err = errors.Join(err, bad, wrongUnless(n >= 1 && n <= 1<<60))
			list = append(list, cacheSize{bytes: float64(n)})
			continue
		}
		n, bad := parseAmount(s, 1<<50)
		err = errors.Join(err, bad)
		list = append(list, cacheSize{tokens: n})
	}
	return list, err
}

// barWidth is the width of the longest bar, in columns. With it, the table of hits fits into 80 columns.
const barWidth = 22

// bar draws a share as a bar, to an eighth of a column.
func bar(share float64) string {
	eighths := int(math.Round(min(max(share, 0), 1) * barWidth * 8))
	out := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		out += string([]rune("▏▎▍▌▋▊▉")[rest-1])
	}
	return out
}

// potentialText formats what caches of all sizes hit.
func (t inspected) potentialText() string {
	p := t.Potential
	var b strings.Builder
	fmt.Fprintf(&b, " %s: what prefix caches hit (LRU, %s)\n", t.Trace, p.Eviction)
	if why := p.Undefined["curve"]; why != "" {
		fmt.Fprintf(&b, " undefined       %s\n", why)
		return b.String()
	}
	sized, sampled := p.BytesPerToken > 0, p.SamplingRatio < 1
	columns := func(tokens, memory, rate, off, share, drawn string) (row table.Row) {
		row = append(row, tokens)
		if sized {
			row = append(row, memory)
		}
		row = append(row, rate)
		if sampled {
			row = append(row, off)
		}
		return append(row, share, drawn)
	}
	w := term.NewTable()
	header := columns("tokens", "memory", "hits", "error", "of ceiling", "")
	w.AppendHeader(header)
	alignRight(w, 1, len(header)-1)
	for _, c := range p.Curve {
		tokens, memory := "infinite", ""
		if c.Tokens > 0 {
			tokens, memory = term.Comma(c.Tokens), term.Size(c.Bytes)
		}
		if c.Undefined != nil { // too small for the sample
			w.AppendRow(columns(tokens, memory, "", "", mooncake.Undefined, ""))
			continue
		}
		w.AppendRow(columns(tokens, memory, fmt.Sprintf("%.2f %%", 100*c.Rate), fmt.Sprintf("± %.2f", 100*c.StandardError), term.Share(c.OfCeiling), bar(c.OfCeiling)))
	}
	b.WriteString(w.Render() + "\n\n")
	b.WriteString(t.potentialFigures() + "\n")
	b.WriteString(prefixTable(p, t.infinite().HitTokens))
	return b.String()
}

// potentialFigures returns the lines below the table of hits.
func (t inspected) potentialFigures() string {
	p := t.Potential
	var b strings.Builder
	say := func(there bool, label, format string, args ...any) {
		if there {
			fmt.Fprintf(&b, " %-12s "+format+"\n", append([]any{label}, args...)...)
		}
	}
	size := func(s stats.CacheSize) string {
		out := term.Comma(s.Tokens) + " tokens"
		if s.Bytes > 0 {
			out += ", " + term.Size(s.Bytes)
		}
		return out
	}
	say(p.Undefined["knee"] == "" && p.Knee.Tokens > 0, "knee", "%s: the least for %.0f %% of the ceiling", size(p.Knee), 100*stats.KneeShare)
	say(p.Undefined["knee"] != "", "knee", "undefined: %s", p.Undefined["knee"])
	say(true, "working set", "%s: nothing is evicted", size(p.WorkingSet))
	say(true, "prompts", "%s tokens in %s", term.Comma(p.PromptTokens), term.Counted(p.Rows, "rows"))
	say(p.WarmUpRows > 0, "warm-up", "%s filled the caches first, and are not counted", term.Counted(p.WarmUpRows, "rows"))
	say(p.BytesPerToken > 0, "memory", "%s of KV cache for each token", humanize.IBytes(uint64(p.BytesPerToken))) //nolint:gosec // above 0
	if p.SamplingRatio < 1 {
		say(true, "estimated", "from %s, %s of all; the error is one standard error,", term.Counted(int64(p.SampledBlocks), "blocks"), term.Share(p.SamplingRatio))
		say(true, "", "in percentage points")
		for _, c := range p.Curve {
			if why := c.Undefined["hit_rate"]; why != "" {
				say(true, "undefined", "%s", why)
				break
			}
		}
		say(p.SampledBlocks < fewSampled, "warning", "so few blocks say little: raise --sample, or leave it out")
	}
	c := t.infinite()
	say(c.Unknown > 0 && p.SamplingRatio == 1, "warning", "the hits of %s are not known: more ids than --max-ids", term.Counted(c.Unknown, "rows"))
	return b.String()
}

// prefixTable lists the shared prefixes with the most hit tokens.
func prefixTable(p *stats.Potential, all int64) string {
	if why := p.Undefined["shared_prefixes"]; why != "" {
		return fmt.Sprintf(" shared prefixes are undefined: %s\n", why)
	}
	if len(p.Prefixes) == 0 {
		return " No two prompts begin with the same block.\n"
	}
	w := term.NewTable()
	w.SetTitle("shared prefixes that save the most")
	w.AppendHeader(table.Row{"prefix (last id)", "tokens", "requests", "tokens saved", "of all hits"})
	alignRight(w, 1, 5)
	for _, x := range p.Prefixes {
		w.AppendRow(table.Row{x.ID, term.Comma(x.Tokens), term.Comma(x.Requests), term.Comma(x.Saved), term.Share(float64(x.Saved) / float64(all))})
	}
	return w.Render() + "\n"
}
