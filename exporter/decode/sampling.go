// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package decode

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"go.uber.org/zap"

	"github.com/moonloop/moonloop/capture/journal"
	"github.com/moonloop/moonloop/mooncake"
)

// SamplingConfig is the section "sampling" of the settings of a component that writes records.
type SamplingConfig struct {
	// Rate is the share of the requests of production that is recorded, 0.001 to 1, in steps of a millionth. Default 1.
	Rate float64 `mapstructure:"rate"`
	// TrunkList is a file written by moonloop trunk, the same for all Collectors. Without one, all prompts with the same first 128 bytes
	// are one group.
	TrunkList string `mapstructure:"trunk_list"`
	// By says what identifies a conversation first: its session (the default) or the prefix of its prompts.
	By mooncake.SampleOrder `mapstructure:"by"`
}

// DefaultSamplingConfig returns the default settings, which keep all records.
func DefaultSamplingConfig() SamplingConfig { return SamplingConfig{Rate: 1} }

// Validate returns all errors of the settings, except those in the trunk list's file. The Collector calls it, and names the section before
// each error.
func (c *SamplingConfig) Validate() error {
	var errs []error
	if !(c.Rate >= mooncake.MinSampleRate && c.Rate <= 1) {
		errs = append(errs, fmt.Errorf("rate is %g: it must be from %g to 1, which records all requests", c.Rate, mooncake.MinSampleRate))
	}
	if c.By != "" {
		if _, err := mooncake.ParseSampleOrder(string(c.By)); err != nil {
			errs = append(errs, fmt.Errorf("by is %w", err))
		}
	}
	if c.TrunkList != "" && c.Rate == 1 {
		errs = append(errs, errors.New("trunk_list has no effect without a rate below 1: set the rate, or leave the list out"))
	}
	return errors.Join(errs...)
}

// Load returns the sampling of the settings; nil if they keep all records, as a zero SamplingConfig also does.
func (c *SamplingConfig) Load() (*Sampling, error) {
	if c.Rate == 0 || c.Rate == 1 {
		return nil, nil
	}
	s := &Sampling{By: c.By}
	s.made.ByPrefix = c.By == mooncake.SamplePrefix
	perMillion := min(max(math.Round(c.Rate*1e6), 1), journal.MaxPerMillion)
	s.made.PerMillion, s.sampler.Rate = uint32(perMillion), perMillion/1e6
	if c.TrunkList != "" {
		list, err := mooncake.LoadTrunkList(c.TrunkList)
		if err != nil {
			return nil, fmt.Errorf("sampling::trunk_list: %w", err)
		}
		s.list, s.sampler.Seed, s.made.List = list, list.Seed, journal.Domain(list.Fingerprint())
	}
	return s, nil
}

// Sampling selects requests of production by [mooncake.Sampler]. It is safe for concurrent use. [SamplingConfig.Load] makes one.
type Sampling struct {
	By      mooncake.SampleOrder
	sampler mooncake.Sampler
	list    *mooncake.TrunkList
	made    journal.Sampled // what records say of it
}

// prompt returns the group of a prompt, and whether the trunk list lacks its domain.
func (s *Sampling) prompt(p *journal.Prompt) (g mooncake.Group, ok, unlisted bool) {
	ids := p.HashIDs
	if p.Chain.Bytes > 0 {
		ids = p.Chain.Cells
	}
	trunk := s.list.Trunk(uint32(p.Domain))
	if id, below := trunk.Below(ids); below {
		return mooncake.BlockGroup(id), true, s.list != nil && trunk == nil
	}
	if p.Chain.Bytes > 0 { // shorter than a cell after the trunk: the whole text decides
		return mooncake.BlockGroup(p.Chain.Tail), true, s.list != nil && trunk == nil
	}
	g, ok = trunk.Group(ids)
	return g, ok, ok && s.list != nil && trunk == nil
}

// SamplingWarner warns once about settings that work but are probably not intended. It is safe for concurrent use; with a nil Sampling it
// does nothing.
type SamplingWarner struct {
	Sampling *Sampling
	Log      *zap.Logger

	undecided, unlisted sync.Once
}

// Begin warns about the settings.
func (w *SamplingWarner) Begin() {
	if w.Sampling != nil && w.Sampling.list == nil {
		w.Log.Warn("sampling has no trunk_list: of the requests that no session identifies, those whose prompts begin with the same 128 bytes, "+
			"such as one system prompt, are recorded all or not at all; make a list with moonloop trunk", zap.Float64("rate", w.Sampling.sampler.Rate))
	}
}

// Warn warns about the counts of a batch.
func (w *SamplingWarner) Warn(c Counts) {
	if c.Undecided > 0 {
		w.undecided.Do(func() {
			w.Log.Warn("sampling left out records because their batch had neither a session nor a prompt to decide by: the spans and log records of a "+
				"request arrive in different batches; put a processor that groups by trace before this component, or record all requests (reported only once)",
				zap.Int64("records", c.Undecided))
		})
	}
	if c.Unlisted > 0 {
		w.unlisted.Do(func() {
			w.Log.Warn("the trunk_list does not have the hash domain of a prompt: it was made under another hash_key or for other models; make a new one "+
				"with moonloop trunk (reported only once)", zap.Int64("prompts", c.Unlisted))
		})
	}
}
