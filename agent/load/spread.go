// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package load

import "github.com/moonloop/moonloop/mooncake/transform"

// Spread says how rows that share a coarse timestamp are spread over the tick that it stands for. Every span and record has the time that
// spreading added. A trace can also be spread in advance: [transform.Config].
type Spread = transform.Spread

// The kinds of spreading.
const (
	SpreadNone    = transform.SpreadNone
	SpreadUniform = transform.SpreadUniform
	SpreadEven    = transform.SpreadEven
)
