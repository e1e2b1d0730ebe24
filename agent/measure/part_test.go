// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/moonloop/moonloop/mooncake"
	"github.com/moonloop/moonloop/semconv"
)

// ofClass returns a record of a row of a class, with a priority if one is given.
func ofClass(class string, outcome Outcome, priority ...int64) *Record {
	r := served()
	row := *r.Row
	row.Class, r.Row, r.Outcome = class, &row, outcome
	r.Sent = outcome != Skipped
	for _, n := range priority {
		r.Priority = mooncake.Some(n)
	}
	return r
}

// TestClasses: each class has its own counts of rows and latencies, and a priority if all of its requests had the same one.
func TestClasses(t *testing.T) {
	first := served()
	ttft, _ := first.TTFT(first.Exchange.Start)
	a := NewAggregate(Options{SLO: SLO{TTFT: ttft + time.Millisecond}})
	slow := ofClass("batch", Served, 9)
	for i := range slow.Exchange.At {
		slow.Exchange.At[i] += int64(time.Second)
	}
	slow.Exchange.End += time.Second
	for _, r := range []*Record{
		ofClass("batch", Served, 9), slow, ofClass("batch", Failed, 9), ofClass("batch", Skipped),
		ofClass("chat", Served, 0), ofClass("chat", Served, 1),
		ofClass("half", Served, 4), ofClass("half", Served),
		ofClass("", Served), ofClass("", Cancelled),
	} {
		a.Add(r)
	}
	var got []string
	for _, c := range a.Figures().Classes {
		priority := "-"
		if c.Priority != nil {
			priority = fmt.Sprint(*c.Priority)
		}
		got = append(got, fmt.Sprintf("%s %s %d=%d+%d+%d+%d good %d ttft %d ≤ %v", c.Class, priority, c.Rows.Total, c.Rows.Served, c.Rows.Failed, c.Rows.Skipped, c.Rows.Cancelled,
			*c.Good, c.TTFT.Count, time.Duration(c.TTFT.Max*1e6)))
	}
	want := fmt.Sprintf(" - 2=1+0+0+1 good 1 ttft 1 ≤ %[1]v|batch 9 4=2+1+1+0 good 1 ttft 2 ≤ %[2]v|chat - 2=2+0+0+0 good 2 ttft 2 ≤ %[1]v|half - 2=2+0+0+0 good 2 ttft 2 ≤ %[1]v", ttft, ttft+time.Second)
	if strings.Join(got, "|") != want {
		t.Errorf("got  %s\nwant %s", strings.Join(got, "|"), want)
	}

	a = NewAggregate(Options{})
	a.Add(ofClass("", Served, 3))
	if c := a.Figures().Classes; c != nil {
		t.Errorf("no row has a class, but the figures have classes: %v", c)
	}
	for i := range MaxClasses + 5 {
		a.Add(ofClass(fmt.Sprint(i), Served))
	}
	classes := a.Figures().Classes
	if last := classes[len(classes)-1]; len(classes) != MaxClasses+1 || last.Class != semconv.ErrorOther || last.Rows.Total != 6 || last.Good != nil {
		t.Errorf("%d classes, the last is %+v", len(classes), last)
	}
}
