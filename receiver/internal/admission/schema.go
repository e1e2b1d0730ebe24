// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

// message describes a message of OTLP, as far as its size in memory depends on it.
type message struct {
	// size is its size in memory, in bytes, with the spare capacity of slices. 0 if its parent contains it directly.
	size int64
	// fields are its messages, by number. A number without an entry is a scalar, or unknown.
	fields [16]*message
	// deprecated is the message of field 1000, which older senders used.
	deprecated *message
	// strings and numbers are the fields that are lists of such values, as bits: an element may take more in memory than on the wire.
	strings, numbers uint16
	// nests says whether it is a value that can contain others.
	nests bool
}

// The requests of the three signals.
var (
	tracesRequest  = signal(span)
	logsRequest    = signal(logRecord)
	metricsRequest = signal(metric)
)

// signal returns the request of a signal; each signal has its own messages in a scope.
func signal(scoped func() *message) *message {
	entity := &message{size: 96, strings: 1<<3 | 1<<4}
	resource := of(0, 1, keyValue, 3, entity)
	scopes := of(136, 1, of(0, 3, keyValue), 2, scoped())
	resources := of(144, 1, resource, 2, scopes)
	resources.deprecated = scopes
	return of(0, 1, resources)
}

// keyValue is an attribute, and value its value. Their sizes also cover the old list that exists while a
// list of attributes grows.
var keyValue, value = attributes()

func attributes() (keyValue, value *message) {
	keyValue, value = &message{size: 104}, &message{nests: true}
	list, keyValues := &message{size: 48}, &message{size: 48}
	member := &message{size: 56, nests: true}
	value.fields[5], value.fields[6] = list, keyValues
	member.fields = value.fields
	list.fields[1] = member
	keyValues.fields[1] = keyValue
	keyValue.fields[2] = value
	return keyValue, value
}

func span() *message {
	return of(256, 9, keyValue, 11, of(96, 3, keyValue), 13, of(112, 4, keyValue))
}

func logRecord() *message { return of(224, 5, value, 6, keyValue) }

func metric() *message {
	exemplar := of(112, 7, keyValue)
	numbers := of(48, 1, of(160, 5, exemplar, 7, keyValue))
	point := of(240, 8, exemplar, 9, keyValue)
	buckets := &message{numbers: 1 << 2}
	exponential := of(48, 1, of(320, 1, keyValue, 8, buckets, 9, buckets, 11, exemplar))
	summary := of(48, 1, of(160, 6, &message{size: 32}, 7, keyValue))
	return of(176, 5, numbers, 7, numbers, 9, of(48, 1, point), 10, exponential, 11, summary, 12, keyValue)
}

// of returns a message of a size, with fields that are given as number and message in turn.
func of(size int64, fields ...any) *message {
	m := &message{size: size}
	for i := 0; i < len(fields); i += 2 {
		m.fields[fields[i].(int)] = fields[i+1].(*message) //nolint:forcetypeassert,gosec // calls in this file
	}
	return m
}
