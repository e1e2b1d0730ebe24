// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/moonloop/moonloop/agent/clock"
	"github.com/moonloop/moonloop/agent/send"
)

// TestShift: every instant of a record moves, and nothing else. So the test fails if Shift leaves out a field that is new.
func TestShift(t *testing.T) {
	lengths := []string{"Offset", "Spread", "Excused"} // durations, which are not instants
	r := Record{Sent: true}
	r.Exchange.At = []int64{7, 9}
	each := func(visit func(name string, v reflect.Value)) {
		for _, part := range []reflect.Value{reflect.ValueOf(&r).Elem(), reflect.ValueOf(&r.Exchange).Elem()} {
			for i := range part.NumField() {
				if f := part.Type().Field(i); f.Type == reflect.TypeFor[time.Duration]() && !slices.Contains(lengths, f.Name) {
					visit(f.Name, part.Field(i))
				}
			}
		}
	}
	n := 0
	each(func(_ string, v reflect.Value) { n++; v.SetInt(int64(n)) })
	r.Offset, r.Exchange.Phases = 5, send.Phases{Waiting: 3}
	r.Shift(100)
	i := 0
	each(func(name string, v reflect.Value) {
		if i++; v.Int() != int64(100+i) {
			t.Errorf("%s is %d, want %d", name, v.Int(), 100+i)
		}
	})
	if n < 10 || !slices.Equal(r.Exchange.At, []int64{107, 109}) || r.Offset != 5 || r.Exchange.Phases.Waiting != 3 {
		t.Errorf("%d instants; %+v", n, r)
	}
	r.Exchange.Wire = clock.Never
	r.Shift(100)
	if r.Exchange.Wire != clock.Never {
		t.Errorf("an instant that never came is at %v", r.Exchange.Wire)
	}
}
