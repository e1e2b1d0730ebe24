// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package transform

import (
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"

	"github.com/moonloop/moonloop/mooncake/stats"
)

const (
	minute     = 60e3    // ms
	maxMinutes = 1 << 20 // of a curve; the minutes of a longer trace are longer
	sums       = 3       // figures in addition to the curve: input, hit and output tokens
	sumWeight  = 40      // weight of such a figure, relative to a minute
	sweeps     = 4       // passes over all clusters, to exchange them
	trunkRefs  = 50      // references of a trunk block that a sample must keep to estimate its share
)

// trunkLimit returns the number of rows above which a block belongs to the trunk, for a sample or for copies: 1 % of the rows, but at least
// the number that distinguishes a trunk from a conversation. A sample keeps clusters whole, so blocks with few references in a sample
// belong to clusters, unless such clusters were too large for sampling.
func trunkLimit(rows int, share float64) float64 {
	limit := float64(rows) / 100
	if share < 1 {
		limit = min(max(limit, trunkRefs/share), share*float64(rows)/4)
	}
	return max(limit, stats.TrunkRows)
}

// sampler chooses clusters.
type sampler struct {
	x      *index
	order  []uint32 // rows, by cluster
	begin  []uint32 // of each cluster in order, and the end of the last one
	parts  []part   // the parts of clusters in minutes, by cluster: contiguous, because each is read many times
	first  []uint32 // of each cluster in parts, and the end of the last one
	tokens [][sums]float64
	weight []float64
	off    []float64 // excess of the chosen clusters over their share, for each minute and sum
	width  float64   // of a minute
}

// part is the number of rows in a minute.
type part struct{ minute, rows uint32 }

// sample chooses clusters that have about this share of the rows of each minute, of the tokens and of the hits, and returns for each row
// whether it is chosen.
func (x *index) sample(share float64, seed uint64) (chosen []bool) {
	chosen = make([]bool, len(x.key))
	if len(x.key) == 0 || share <= 0 {
		return chosen
	}
	s := newSampler(x, share)
	random := rand.New(rand.NewPCG(seed, 0x7472616365)) //nolint:gosec // no secret
	clusters := len(s.begin) - 1
	turn := random.Perm(clusters)
	rank := func(c int) int { return bits.Len32(s.begin[c+1] - s.begin[c]) }
	slices.SortStableFunc(turn, func(a, b int) int { return rank(b) - rank(a) }) // large ones first: small ones can correct the rest
	taken := make([]bool, clusters)
	for _, c := range turn {
		// The share, minus the excess so far of what the cluster has.
		along, length := 0., 0.
		s.each(c, func(dim int, v float64) {
			along += s.weight[dim] * s.off[dim] * v
			length += s.weight[dim] * v * v
		})
		taken[c] = random.Float64() < share-along/length
		by := -share
		if taken[c] {
			by = 1 - share
		}
		s.move(c, by)
	}
	for range sweeps {
		random.Shuffle(len(turn), func(i, j int) { turn[i], turn[j] = turn[j], turn[i] })
		for _, c := range turn {
			by := 1.
			if taken[c] {
				by = -1
			}
			change := 0.
			s.each(c, func(dim int, v float64) { change += s.weight[dim] * (2*s.off[dim]*by*v + v*v) })
			if change < 0 {
				taken[c] = !taken[c]
				s.move(c, by)
			}
		}
	}
	for c, is := range taken {
		for _, row := range s.order[s.begin[c]:s.begin[c+1]] {
			chosen[row] = is
		}
	}
	return chosen
}

func newSampler(x *index, share float64) *sampler {
	s := &sampler{x: x, width: minute}
	begin, end := slices.Min(x.key), slices.Max(x.key)
	s.width = max(minute, (end-begin)/maxMinutes)
	minutes := int((end-begin)/s.width) + 1
	s.weight, s.off = make([]float64, minutes+sums), make([]float64, minutes+sums)
	// Rows by cluster, in a counting sort: clusters by the row that represents them, and the rows of each in their order.
	number := make([]uint32, len(x.key))
	for i, c := range x.cluster {
		if int(c) == i {
			number[i] = uint32(len(s.begin)) //nolint:gosec // bounded by maxIndexed
			s.begin = append(s.begin, 0)
		}
	}
	s.begin = append(s.begin, 0)
	for _, c := range x.cluster {
		s.begin[number[c]+1]++
	}
	for c := range s.begin[1:] {
		s.begin[c+1] += s.begin[c]
	}
	s.order = make([]uint32, len(x.key))
	at := slices.Clone(s.begin)
	for i, c := range x.cluster {
		s.order[at[number[c]]] = uint32(i)
		at[number[c]]++
	}
	s.measure(begin)
	// The weights make deviations comparable: each is about the inverse of the variance if every cluster were drawn independently.
	for c := range len(s.begin) - 1 {
		s.each(c, func(dim int, v float64) {
			if dim >= minutes {
				s.weight[dim] += v * v
			} else {
				s.weight[dim] += v
			}
		})
	}
	for dim, v := range s.weight {
		if v > 0 {
			s.weight[dim] = 1 / (share * v)
		}
		if dim >= minutes {
			s.weight[dim] *= sumWeight
		}
	}
	return s
}

// measure computes the parts and tokens of each cluster.
func (s *sampler) measure(begin float64) {
	clusters := len(s.begin) - 1
	s.first, s.tokens = make([]uint32, 0, clusters+1), make([][sums]float64, clusters)
	for c := range clusters {
		s.first = append(s.first, uint32(len(s.parts))) //nolint:gosec // bounded by maxIndexed
		for i, row := range s.order[s.begin[c]:s.begin[c+1]] {
			at := uint32((s.x.key[row] - begin) / s.width)
			if i == 0 || s.parts[len(s.parts)-1].minute != at {
				s.parts = append(s.parts, part{minute: at})
			}
			s.parts[len(s.parts)-1].rows++
			for k, v := range [sums]float64{float64(s.x.in[row]), s.x.hit(row), float64(s.x.out[row])} {
				s.tokens[c][k] += v
			}
		}
	}
	s.first = append(s.first, uint32(len(s.parts))) //nolint:gosec // likewise
}

// each calls yield with each dimension of a cluster and its value: its rows in a minute, its tokens.
func (s *sampler) each(c int, yield func(dim int, v float64)) {
	for _, p := range s.parts[s.first[c]:s.first[c+1]] {
		yield(int(p.minute), float64(p.rows))
	}
	for k, v := range s.tokens[c] {
		if v > 0 {
			yield(len(s.weight)-sums+k, v)
		}
	}
}

// move adds a cluster, multiplied by a factor, to the excess.
func (s *sampler) move(c int, by float64) {
	s.each(c, func(dim int, v float64) { s.off[dim] = math.FMA(by, v, s.off[dim]) })
}
