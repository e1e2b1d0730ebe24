// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"reflect"
	"sync/atomic"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
)

// GetGRPCServerOptions returns what puts the gate into a gRPC server.
//
// Only the codec sees a request before it is decoded, but it knows of no call, and no status that it returns reaches the
// sender. So it leaves a ticket under the message that it decodes into, or leaves the message empty. The statistics
// of the call, which begin and end with it whatever happens, take the ticket and in the end give the room back. The
// interceptor tells the sender of a refusal.
func (g *Gate) GetGRPCServerOptions(context.Context) ([]grpc.ServerOption, error) {
	return []grpc.ServerOption{
		grpc.ForceServerCodecV2(&codec{CodecV2: encoding.GetCodecV2(proto.Name), gate: g}),
		grpc.StatsHandler(&calls{gate: g}),
		grpc.ChainUnaryInterceptor(intercept),
	}, nil
}

// ticket is the room that a request has, or why it has none.
type ticket struct {
	bytes   int64
	refused *refusal
}

// codec looks at requests before they are decoded.
type codec struct {
	encoding.CodecV2
	gate *Gate
}

// requests are the messages of OTLP by the names of the types that they are decoded into.
var requests = map[string]*message{
	"ExportTraceServiceRequest": tracesRequest, "ExportLogsServiceRequest": logsRequest, "ExportMetricsServiceRequest": metricsRequest,
}

// Unmarshal decodes a message for which there is room. Others it leaves empty.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	t := reflect.TypeOf(v)
	if t.Kind() != reflect.Pointer || requests[t.Elem().Name()] == nil {
		return c.CodecV2.Unmarshal(data, v)
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	body := whole.ReadOnlyData()
	const copies = 2 // of the texts: those received, and those decoded
	bytes := copies * int64(len(body))
	messages, refused := scan(body, requests[t.Elem().Name()], c.gate.limit-bytes)
	if bytes += messages; refused == nil {
		refused = c.gate.take(bytes)
	}
	if refused != nil {
		c.gate.refused(refused.reason)
		c.gate.tickets.Store(v, &ticket{refused: refused})
		return nil
	}
	if err := c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v); err != nil {
		c.gate.giveBack(bytes)
		c.gate.refused(ReasonMalformed)
		c.gate.tickets.Store(v, &ticket{refused: errMalformed})
		return nil //nolint:nilerr // the interceptor has the error: the decoder's would quote the request
	}
	c.gate.tickets.Store(v, &ticket{bytes: bytes})
	return nil
}

// call is what is known of a call from its beginning on.
type call struct {
	request any
	ticket  atomic.Pointer[ticket]
}

type callKey struct{}

// calls follows the calls of a server.
type calls struct{ gate *Gate }

// TagRPC begins a call.
func (*calls) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context {
	return context.WithValue(ctx, callKey{}, new(call))
}

// HandleRPC takes the ticket of a call when its request is there, and gives the room back at its end.
func (h *calls) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.InPayload:
		c.request = s.Payload
		c.ticket.Store(h.gate.pick(s.Payload))
	case *stats.End:
		for _, t := range []*ticket{c.ticket.Load(), h.gate.pick(c.request)} { // the second is of a message too many
			if t != nil {
				h.gate.giveBack(t.bytes)
			}
		}
	}
}

// TagConn does nothing.
func (*calls) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (*calls) HandleConn(context.Context, stats.ConnStats) {}

// pick takes the ticket of a request, nil if there is none.
func (g *Gate) pick(request any) *ticket {
	if request == nil {
		return nil
	}
	t, ok := g.tickets.LoadAndDelete(request)
	if !ok {
		return nil
	}
	return t.(*ticket) //nolint:forcetypeassert // there is nothing else
}

// intercept keeps refused requests from their handler.
func intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		if t := c.ticket.Load(); t != nil && t.refused != nil {
			return nil, status.Error(t.refused.code(), t.refused.message)
		}
	}
	return handler(ctx, request)
}

// code returns the status of a refusal. Senders try again after Unavailable only.
func (r *refusal) code() codes.Code {
	switch r.reason {
	case ReasonBusy:
		return codes.Unavailable
	case ReasonTooLarge:
		return codes.ResourceExhausted
	default:
		return codes.InvalidArgument
	}
}
