// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package generate

import "math"

// The functions here return the same bits on every machine. They use only operations that IEEE 754 rounds exactly. Each product is
// converted explicitly, because Go may otherwise fuse it with a sum on some processors.

const (
	ln2High = 6.93147180369123816490e-01 // ln 2 in two parts, the first with trailing zeros
	ln2Low  = 1.90821492927058770002e-10
)

// ln returns the natural logarithm of x > 0, to about 1e-15: x = m * 2^e with m near 1, and the series of
// the inverse hyperbolic tangent for m.
func ln(x float64) float64 {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = float64(m*2), e-1
	}
	s := (m - 1) / (m + 1) // |s| < 0.172
	square := float64(s * s)
	sum := 0.0
	for k := 23; k >= 1; k -= 2 {
		sum = float64(sum*square) + 1/float64(k)
	}
	n := float64(e)
	return float64(n*ln2High) + (float64(n*ln2Low) + float64(2*float64(s*sum)))
}

// exp returns e^x for |x| < 700, to about 1e-15: the Taylor series after taking out a power of two.
func exp(x float64) float64 {
	n := math.Floor(x/math.Ln2 + 0.5)
	r := x - float64(n*ln2High) - float64(n*ln2Low) // |r| < 0.35
	sum := 1.0
	for k := 17; k >= 1; k-- {
		sum = 1 + float64(sum*r)/float64(k)
	}
	return math.Ldexp(sum, int(n))
}
