// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package report

import (
	"encoding/json"
	"math"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// numbers are durations and instants as runs have them, and numbers that no run has.
var numbers = []float64{
	0, 0.001, 0.01, 0.1, 0.999, 1, 1.05, 10.2, 99.999, 1100.05, 123456.789, 86_400_000.001, 3.2e9, 4.611686e12,
	-0.001, -1.5, math.Copysign(0, -1), 0.0004, 0.0005, 0.0015, 1e-7, 1e15, 1e16 + 2, 1e21, 1e22, 0.1 + 0.2, 1.0 / 3,
}

var texts = []string{"", "served", "a \"quoted\" word", `\`, "<&>", "ümlaut", "\x7f\x00\n", "\xff", "\u2028"}

// randomize sets a value at random, all of its fields included.
func randomize(v reflect.Value, rnd *rand.Rand) {
	switch v.Kind() {
	case reflect.Struct:
		for _, field := range v.Fields() {
			randomize(field, rnd)
		}
	case reflect.Pointer:
		if rnd.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			randomize(v.Elem(), rnd)
		}
	case reflect.Slice:
		if n := rnd.IntN(4); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n-1, n))
			for i := range v.Len() {
				randomize(v.Index(i), rnd)
			}
		}
	case reflect.String:
		v.SetString(texts[rnd.IntN(len(texts))])
	case reflect.Bool:
		v.SetBool(rnd.IntN(2) > 0)
	case reflect.Float64:
		v.SetFloat(numbers[rnd.IntN(len(numbers))])
	case reflect.Int, reflect.Int32, reflect.Int64:
		v.SetInt([]int64{0, 1, -1, 200, math.MaxInt32}[rnd.IntN(5)])
	default:
		panic(v.Type())
	}
}

// TestAppendIsJSON: a result is written as encoding/json writes it, whatever its fields are.
func TestAppendIsJSON(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	check := func(res *result) {
		t.Helper()
		want, err := json.Marshal(res)
		if err != nil {
			t.Fatal(err)
		}
		got, err := res.append([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff("before"+string(want), string(got)); d != "" {
			t.Fatal(d)
		}
	}
	check(new(result))
	for range 20_000 {
		res := new(result)
		randomize(reflect.ValueOf(res).Elem(), rnd)
		check(res)
	}
	for _, r := range append(records(), odd()...) {
		check(new(new(values).result(r)))
	}
}

func TestAppendRefusesWhatJSONLacks(t *testing.T) {
	for _, v := range []float64{math.NaN(), math.Inf(1), math.Inf(-1)} {
		if text, err := (&result{Start: &v}).append(nil); err == nil {
			t.Errorf("%v is written as %s", v, text)
		}
	}
}
