package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"
)

// puller asks a consumer for messages. It listens on one inbox for as long as it
// lives, where the client of JetStream makes one for each request: what was on
// its way when such a request was given up is lost for a whole AckWait (seen in
// 1.55.0). Here it is given back at once. Its methods may be called from any
// goroutine.
type puller struct {
	nc      *nats.Conn
	subject string // of requests
	inbox   string // of answers, with the number of the request behind it
	sub     *nats.Subscription
	remove  func() // the consumer, when the puller is closed; nil leaves it

	mu       sync.Mutex // guards what follows
	last     int        // number of the last request
	requests map[string]chan *nats.Msg
}

// pullFrom makes a consumer, or takes the one that is there, and listens for what
// it gives. The caller closes the puller.
func (e *Engine) pullFrom(ctx context.Context, stream string, config jetstream.ConsumerConfig) (*puller, error) {
	if err := e.consumer(ctx, stream, config); err != nil {
		return nil, err
	}
	// The next sole one makes it anew, and a server takes long to put one away.
	return e.pulling(stream, config.Durable, e.opts.Sole)
}

// pulling listens for what a consumer gives, which may be removed by closing the puller.
func (e *Engine) pulling(stream, consumer string, remove bool) (*puller, error) {
	p := &puller{
		nc: e.b.Conn(), subject: "$JS.API.CONSUMER.MSG.NEXT." + stream + "." + consumer,
		inbox: e.b.Conn().NewRespInbox() + ".", requests: map[string]chan *nats.Msg{},
	}
	if remove {
		p.remove = func() {
			ctx, cancel := context.WithTimeout(context.Background(), tryFor)
			defer cancel()
			e.js.DeleteConsumer(ctx, stream, consumer)
		}
	}
	var err error
	if p.sub, err = p.nc.Subscribe(p.inbox+"*", p.arrive); err != nil {
		return nil, fmt.Errorf("listening for consumer %s: %w", consumer, err)
	}
	return p, nil
}

// source is a consumer of a stream.
type source struct {
	stream string
	config jetstream.ConsumerConfig
}

// pullersFrom is pullFrom for several, all at once.
func (e *Engine) pullersFrom(ctx context.Context, sources []source) ([]*puller, error) {
	list := make([]*puller, len(sources))
	var g errgroup.Group
	for i, s := range sources {
		g.Go(func() (err error) {
			list[i], err = e.pullFrom(ctx, s.stream, s.config)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		closeAll(list)
		return nil, err
	}
	return list, nil
}

// closeAll closes pullers; nil is one that could not be made.
func closeAll(list []*puller) {
	var all sync.WaitGroup
	for _, p := range list {
		if p != nil {
			all.Go(p.close)
		}
	}
	all.Wait()
}

// close stops to listen, when what is on its way has come and was given back.
func (p *puller) close() {
	closed := p.sub.StatusChanged(nats.SubscriptionClosed)
	if p.sub.Drain() != nil {
		return // the connection is closed
	}
	select {
	case <-closed:
	case <-time.After(time.Second):
	}
	if p.remove != nil {
		p.remove()
	}
}

// arrive passes a message on to who asked for it. It runs in the goroutine of the
// subscription.
func (p *puller) arrive(msg *nats.Msg) {
	p.mu.Lock()
	defer p.mu.Unlock()
	// A message has the subject that it was published on; whose request it
	// answers, the subscription knows no more. Statuses have that of the request.
	number := strings.TrimPrefix(msg.Subject, p.inbox)
	if isStatus(msg) {
		select {
		case p.requests[number] <- msg:
		default: // it is over, or has all that it asked for
		}
		return
	}
	for _, to := range p.requests {
		select {
		case to <- msg:
			return
		default:
		}
	}
	msg.Nak() // nobody wants it any more
}

// isStatus tells whether the server says how it stands with a request.
func isStatus(msg *nats.Msg) bool { return len(msg.Data) == 0 && msg.Header.Get("Status") != "" }

// errNoAnswer says that the server did not answer a request.
var errNoAnswer = errors.New("the server does not answer")

// fetch asks for n messages and returns those that came, none if there are none.
// It waits for the first for that long, or until ctx ends, or with zero not at
// all; otherwise it does not end before the server has said that no more will
// come, or is silent.
func (p *puller) fetch(ctx context.Context, n int, wait time.Duration) (list []*nats.Msg, err error) {
	request := struct {
		Batch   int           `json:"batch"`
		Expires time.Duration `json:"expires,omitempty"`
		NoWait  bool          `json:"no_wait,omitempty"`
	}{Batch: n, Expires: wait, NoWait: wait == 0}
	data, err := json.Marshal(request)
	if err != nil {
		return nil, err
	}
	answers := make(chan *nats.Msg, n+1) // sent by arrive, never closed
	p.mu.Lock()
	p.last++
	number := strconv.Itoa(p.last)
	p.requests[number] = answers
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		delete(p.requests, number)
		p.mu.Unlock()
		for { // what came in the last moment
			select {
			case msg := <-answers:
				if !isStatus(msg) {
					msg.Nak()
				}
			default:
				return
			}
		}
	}()
	if err := p.nc.PublishRequest(p.subject, p.inbox+number, data); err != nil {
		return nil, err
	}
	silence := time.NewTimer(wait + time.Second)
	defer silence.Stop()
	for len(list) < n {
		select {
		case msg := <-answers:
			if isStatus(msg) {
				return list, statusError(msg)
			}
			list = append(list, msg)
		case <-ctx.Done():
			return list, nil
		case <-silence.C:
			if len(list) == 0 {
				err = errNoAnswer
			}
			return list, err
		}
	}
	return list, nil
}

// statusError returns what a status says is wrong, nil if all is well.
func statusError(msg *nats.Msg) error {
	switch status := msg.Header.Get("Status"); status {
	case "100", "404", "408": // there is nothing, or not now
		return nil
	default: // nobody has the consumer at this moment, or not any more
		return fmt.Errorf("%w: status %s: %s", errNoAnswer, status, msg.Header.Get("Description"))
	}
}
