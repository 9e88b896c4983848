package main

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// As many messages may wait for their acknowledgement as in the client's default.
const natsInFlight = 4000

// How long one request for a stream may take.
const attempt = 5 * time.Second

func natsStream(partition int) string  { return fmt.Sprintf("s%d", partition) }
func natsSubject(partition int) string { return fmt.Sprintf("t.%d", partition) }

func natsConnect(url string, options ...jetstream.JetStreamOpt) (*nats.Conn, jetstream.JetStream) {
	connection, err := nats.Connect(url, nats.DontRandomize())
	must(err)
	js, err := jetstream.New(connection, options...)
	must(err)
	return connection, js
}

// The server that leads the stream, if there is one stream; else the first one.
func natsNearest(urls string, partitions int) string {
	all := strings.Split(urls, ",")
	if partitions > 1 {
		return all[0]
	}
	connection, js := natsConnect(all[0])
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	stream, err := js.Stream(ctx, natsStream(0))
	must(err)
	return all[number(strings.TrimPrefix(stream.CachedInfo().Cluster.Leader, "n"))]
}

func natsCreate(urls string, partitions int) {
	_, js := natsConnect(strings.Split(urls, ",")[0])
	end := time.Now().Add(wait)
	for partition := range partitions {
		config := jetstream.StreamConfig{
			Name: natsStream(partition), Subjects: []string{natsSubject(partition)}, Storage: jetstream.FileStorage, Replicas: 3,
		}
		// Servers that have not found each other yet refuse three replicas, or do not answer.
		for {
			ctx, cancel := context.WithTimeout(context.Background(), attempt)
			_, err := js.CreateOrUpdateStream(ctx, config)
			cancel()
			if err == nil {
				break
			}
			if time.Now().After(end) {
				must(fmt.Errorf("%s: %w", natsStream(partition), err))
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
}

func natsProduce(urls string, partitions, size int, seconds float64) load {
	var failed atomic.Value
	connection, js := natsConnect(natsNearest(urls, partitions),
		jetstream.WithPublishAsyncMaxPending(natsInFlight),
		jetstream.WithPublishAsyncErrHandler(func(_ jetstream.JetStream, _ *nats.Msg, err error) { failed.Store(err) }),
	)
	defer connection.Close()
	subjects := make([]string, partitions)
	for partition := range subjects {
		subjects[partition] = natsSubject(partition)
	}
	value, count, watch := make([]byte, size), 0, start()
	for watch.seconds() < seconds {
		for range chunk {
			_, err := js.PublishAsync(subjects[count%partitions], value, jetstream.WithStallWait(wait))
			must(err)
			count++
		}
	}
	select {
	case <-js.PublishAsyncComplete():
	case <-time.After(wait):
		must(fmt.Errorf("not all was acknowledged"))
	}
	if err, ok := failed.Load().(error); ok {
		must(err)
	}
	return watch.load(count)
}

func natsConsume(urls string, partitions int, count int) load {
	connection, js := natsConnect(natsNearest(urls, partitions))
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	var seen atomic.Int64
	over := make(chan struct{})
	watch := start()
	for partition := range partitions {
		consumer, err := js.OrderedConsumer(ctx, natsStream(partition), jetstream.OrderedConsumerConfig{})
		must(err)
		consuming, err := consumer.Consume(func(jetstream.Msg) {
			if seen.Add(1) == int64(count) {
				close(over)
			}
		})
		must(err)
		defer consuming.Stop()
	}
	select {
	case <-over:
	case <-ctx.Done():
		must(fmt.Errorf("%d of %d messages came", seen.Load(), count))
	}
	return watch.load(count)
}

func natsDelete(urls string, partitions int) {
	_, js := natsConnect(strings.Split(urls, ",")[0])
	ctx, cancel := context.WithTimeout(context.Background(), wait)
	defer cancel()
	for partition := range partitions {
		must(js.DeleteStream(ctx, natsStream(partition)))
	}
}
