// Copyright The moonloop authors
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"reflect"
	"strings"
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

// GetGRPCServerOptions returns the options that add the gate to a gRPC server.
//
// Only the codec sees a request before it is decoded, but it does not know the call, and its errors do not reach the sender. So it stores
// an upload for the message that it decodes into, and leaves the message empty if it refuses the request. The statistics handler, which is
// always called at the beginning and the end of a call, claims the upload and finally frees its memory. The interceptor, which runs after
// the sender has sent everything, returns a refusal to the sender.
//
// A message is not visible before it is complete. Only the tap can end the wait for it, because the server reads with the context that the
// tap returns.
func (g *Gate) GetGRPCServerOptions(context.Context) ([]grpc.ServerOption, error) {
	return []grpc.ServerOption{
		grpc.InTapHandle(g.tap),
		grpc.ForceServerCodecV2(&codec{CodecV2: encoding.GetCodecV2(proto.Name), gate: g}),
		grpc.StatsHandler(&calls{gate: g}),
		grpc.ChainUnaryInterceptor(intercept),
	}, nil
}

// codec examines requests before they are decoded.
type codec struct {
	encoding.CodecV2
	gate *Gate
}

// requests are the OTLP messages by the names of the types into which they are decoded. These names are internal to the Collector: a
// request that is decoded into another type is refused, so that a renamed type cannot bypass the gate.
var requests = map[string]*message{
	"ExportTraceServiceRequest": tracesRequest, "ExportLogsServiceRequest": logsRequest, "ExportMetricsServiceRequest": metricsRequest,
}

// Unmarshal decodes a message if there is room for it. Otherwise it leaves the message empty.
func (c *codec) Unmarshal(data mem.BufferSlice, v any) error {
	u := &upload{gate: c.gate} // it cannot be ended before its call has claimed it
	if u.ended = c.decode(u, data, v); u.ended != nil {
		u.free()
		c.gate.opt.Refused(u.ended.reason)
	}
	c.gate.decoded.Store(v, u)
	return nil
}

func (c *codec) decode(u *upload, data mem.BufferSlice, v any) *refusal {
	request := requests[reflect.Indirect(reflect.ValueOf(v)).Type().Name()]
	if request == nil {
		return errUnknown
	}
	whole := data.MaterializeToBuffer(mem.DefaultBufferPool())
	defer whole.Free()
	body := whole.ReadOnlyData()
	u.got.Store(int64(len(body)))
	const copies = 2 // of the texts: received, and decoded
	texts := copies * int64(len(body))
	messages, refused := scan(body, request, c.gate.opt.Limit-texts)
	if refused == nil {
		refused = u.reserve(texts + messages)
	}
	if refused == nil && c.CodecV2.Unmarshal(mem.BufferSlice{whole}, v) != nil { // the error quotes the request
		refused = errMalformed
	}
	return refused
}

// call is the state of a call from its beginning on. It is also the context with which the server reads the request.
type call struct {
	context.Context //nolint:containedctx // a call is a context

	upload  *upload
	timer   *time.Timer
	cancel  context.CancelFunc
	ended   atomic.Bool // the reading has ended
	request any
}

type callKey struct{}

// Err tells the sender that its time was over, so that it tries again.
func (c *call) Err() error {
	if err := c.Context.Err(); err == nil || !c.ended.Load() {
		return err
	}
	return context.DeadlineExceeded
}

// methodPrefix begins the names of OTLP's methods. Other calls, such as health checks, have no telemetry.
const methodPrefix = "/opentelemetry.proto.collector."

// tap begins a call. It refuses those that the server would not know, because the statistics handler does not see them.
func (g *Gate) tap(ctx context.Context, info *tap.Info) (context.Context, error) {
	if strings.HasPrefix(info.FullMethodName, methodPrefix) && !g.methods[info.FullMethodName] {
		g.opt.Refused(ReasonNotServed)
		code, _ := errNotServed.status()
		return ctx, status.Error(code, errNotServed.message)
	}
	c := new(call)
	c.Context, c.cancel = context.WithCancel(context.WithValue(ctx, callKey{}, c))
	c.upload = g.begin(func() {
		c.ended.Store(true)
		c.cancel()
	})
	if c.ended.Load() {
		return ctx, status.Error(codes.Unavailable, errStopping.message)
	}
	c.timer = time.AfterFunc(g.opt.GRPCTimeout, c.upload.expire)
	return c, nil
}

// calls follows the calls of a server.
type calls struct{ gate *Gate }

// TagRPC does nothing: the tap was called before.
func (*calls) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

// HandleRPC claims the upload for a call when its request has arrived, and frees it at the end of the call.
func (h *calls) HandleRPC(ctx context.Context, s stats.RPCStats) {
	c, ok := ctx.Value(callKey{}).(*call)
	if !ok {
		return
	}
	switch s := s.(type) {
	case *stats.InPayload:
		c.request = s.Payload
		if u := h.gate.claim(s.Payload); u != nil {
			c.upload.adopt(u)
		}
	case *stats.End:
		c.timer.Stop()
		c.cancel()
		if u := h.gate.claim(c.request); u != nil { // for a surplus message
			u.free()
		}
		why := c.upload.received()
		if why == nil && c.request == nil {
			why = unread(s.Error)
		}
		if why != nil && !c.upload.counted {
			h.gate.opt.Refused(why.reason)
		}
		c.upload.free()
	}
}

// unread returns why the server did not pass a message to the codec; nil if the sender has not sent one.
func unread(err error) *refusal {
	switch status.Code(err) {
	case codes.ResourceExhausted:
		return errTooLong
	case codes.Unimplemented:
		return errEncoding
	case codes.Internal, codes.InvalidArgument: // a broken compression, or a message that breaks off
		return errMalformed
	default:
		return nil
	}
}

// TagConn does nothing.
func (*calls) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

// HandleConn does nothing.
func (*calls) HandleConn(context.Context, stats.ConnStats) {}

// claim returns the upload that the codec has stored for a request, once; nil if there is none.
func (g *Gate) claim(request any) *upload {
	if request == nil {
		return nil
	}
	u, _ := g.decoded.LoadAndDelete(request)
	decoded, _ := u.(*upload)
	return decoded
}

// intercept keeps refused requests from their handler.
func intercept(ctx context.Context, request any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	if c, ok := ctx.Value(callKey{}).(*call); ok {
		c.timer.Stop()
		if refused := c.upload.received(); refused != nil {
			code, _ := refused.status()
			return nil, status.Error(code, refused.message)
		}
	}
	return handler(ctx, request)
}
