// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
)

// GetGRPCServerOptions returns what puts the gate into a gRPC server.
//
// Only the codec sees a request before it is decoded, but it knows of no call, and no status that it returns reaches the
// sender. So it leaves a ticket under the message that it decodes into, or leaves the message empty. The statistics
// of the call, which begin and end with it whatever happens, take the ticket and in the end give the room back. The
// interceptor, which comes when the sender has said that this was all, tells the sender of a refusal.
//
// What has come of a message nobody sees before it is whole, and only the tap can end the wait for it, since the server
// reads under the context that the tap returns.
func (g *Gate) GetGRPCServerOptions(context.Context) ([]grpc.ServerOption, error) {
	return []grpc.ServerOption{
		grpc.InTapHandle(g.tap),
		grpc.ForceServerCodecV2(&codec{CodecV2: encoding.GetCodecV2(proto.Name), gate: g}),
		grpc.StatsHandler(&calls{gate: g}),
		grpc.ChainUnaryInterceptor(intercept),
	}, nil
}

// ticket is the room that a request has, or why it has none.
type ticket struct {
	*upload
	bytes   int64 // of the message
	refused *refusal
}

// codec looks at requests before they are decoded.
type codec struct {
	encoding.CodecV2
	gate *Gate
}

// requests are the messages of OTLP by the names of the types that they are decoded into. These names are the Collector's own
// affair: a request that is decoded into another type is refused, so that a renamed one cannot pass the gate unseen.
var requests = map[string]*message{
	"ExportTraceServiceRequest": tracesRequest, "ExportLogsServiceRequest": logsRequest, "ExportMetricsServiceRequest": metricsRequest,
}

// Unmarshal decodes a message for which there is room. Others it leaves empty.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	request := requests[reflect.Indirect(reflect.ValueOf(v)).Type().Name()]
	if request == nil {
		c.gate.opt.Refused(errUnknown.reason)
		c.gate.tickets.Store(v, &ticket{upload: &upload{gate: c.gate}, refused: errUnknown})
		return nil
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	body := whole.ReadOnlyData()
	const copies = 2 // of the texts: those received, and those decoded
	bytes := copies * int64(len(body))
	u := &upload{gate: c.gate} // not one that can be ended before its call has it
	messages, refused := scan(body, request, c.gate.opt.Limit-bytes)
	if refused == nil {
		refused = u.take(bytes + messages)
	}
	if refused != nil {
		c.gate.opt.Refused(refused.reason)
		c.gate.tickets.Store(v, &ticket{upload: u, refused: refused})
		return nil
	}
	if err := c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v); err != nil {
		u.done()
		c.gate.opt.Refused(ReasonMalformed)
		c.gate.tickets.Store(v, &ticket{upload: u, refused: errMalformed})
		return nil //nolint:nilerr // the interceptor has the error: the decoder's would quote the request
	}
	c.gate.tickets.Store(v, &ticket{upload: u, bytes: int64(len(body))})
	return nil
}

// call is what is known of a call from its beginning on. Its own context is the one that it is read under.
type call struct {
	context.Context //nolint:containedctx // it is one

	upload  *upload
	timer   *time.Timer
	cancel  context.CancelFunc
	ended   atomic.Bool // the reading was
	request any
	ticket  atomic.Pointer[ticket]
}

type callKey struct{}

// Value returns the call itself under its key.
func (c *call) Value(key any) any {
	if key == (callKey{}) {
		return c
	}
	return c.Context.Value(key)
}

// Err tells the sender that its time was over: it tries again after that.
func (c *call) Err() error {
	if err := c.Context.Err(); err == nil || !c.ended.Load() {
		return err
	}
	return context.DeadlineExceeded
}

// tap begins a call.
func (g *Gate) tap(ctx context.Context, _ *tap.Info) (context.Context, error) {
	c := new(call)
	c.Context, c.cancel = context.WithCancel(ctx)
	c.upload = g.begin(func() {
		c.ended.Store(true)
		c.cancel()
	})
	if c.ended.Load() {
		return ctx, status.Error(codes.Unavailable, errStopping.message)
	}
	c.timer = time.AfterFunc(g.opt.GRPCTimeout, c.upload.late)
	return c, nil
}

// calls follows the calls of a server.
type calls struct{ gate *Gate }

// TagRPC does nothing: the tap has been there before.
func (*calls) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC takes the ticket of a call when its request is there, and gives the room back at its end.
func (h *calls) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.InPayload:
		c.request = s.Payload
		if t := h.gate.pick(s.Payload); t != nil {
			c.ticket.Store(t)
			c.upload.got.Store(t.bytes)
			c.upload.adopt(t.upload)
		}
	case *stats.End:
		c.timer.Stop()
		c.cancel()
		if t := h.gate.pick(c.request); t != nil { // of a message too many
			t.done()
		}
		why := c.upload.whole()
		if t := c.ticket.Load(); why != nil && (t == nil || t.refused == nil) { // else it was counted
			h.gate.opt.Refused(why.reason)
		}
		c.upload.done()
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
		c.timer.Stop()
		refused := c.upload.whole()
		if t := c.ticket.Load(); t != nil && t.refused != nil {
			refused = t.refused
		}
		if refused != nil {
			return nil, status.Error(refused.code(), refused.message)
		}
	}
	return handler(ctx, request)
}

// code returns the status of a refusal. Senders try again after Unavailable.
func (r *refusal) code() codes.Code {
	switch r.reason {
	case ReasonBusy, ReasonSlow:
		return codes.Unavailable
	case ReasonTooLarge:
		return codes.ResourceExhausted
	default:
		return codes.InvalidArgument
	}
}
