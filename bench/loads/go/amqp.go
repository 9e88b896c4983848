package main

import (
	"fmt"
	"strings"
	"time"

	amqp "github.com/rabbitmq/amqp091-go"
)

// So many messages may wait for their confirmation.
const amqpInFlight = 4000

// How many messages a consumer has that it has not acknowledged.
const amqpPrefetch = 2000

func amqpQueue(partition int) string { return fmt.Sprintf("q%d", partition) }

func amqpConnect(url string) (*amqp.Connection, *amqp.Channel) {
	connection, err := amqp.Dial(url)
	must(err)
	channel, err := connection.Channel()
	must(err)
	return connection, channel
}

// Queue k is declared on node k modulo three: it is led where it is declared.
func amqpCreate(urls string, partitions int) {
	var channels []*amqp.Channel
	for _, url := range strings.Split(urls, ",") {
		connection, channel := amqpConnect(url)
		defer connection.Close()
		channels = append(channels, channel)
	}
	for partition := range partitions {
		settings := amqp.Table{"x-queue-type": "quorum", "x-quorum-initial-group-size": 3}
		_, err := channels[partition%len(channels)].QueueDeclare(amqpQueue(partition), true, false, false, false, settings)
		must(err)
	}
}

func amqpProduce(urls string, partitions, size int, seconds float64) load {
	connection, channel := amqpConnect(strings.Split(urls, ",")[0])
	defer connection.Close()
	must(channel.Confirm(false))
	confirmations := channel.NotifyPublish(make(chan amqp.Confirmation, amqpInFlight))
	queues := make([]string, partitions)
	for partition := range queues {
		queues[partition] = amqpQueue(partition)
	}
	message := amqp.Publishing{Body: make([]byte, size), DeliveryMode: amqp.Persistent}
	confirmed := func() {
		select {
		case one := <-confirmations:
			if !one.Ack {
				must(fmt.Errorf("a message was refused"))
			}
		case <-time.After(wait):
			must(fmt.Errorf("not all was confirmed"))
		}
	}
	count, pending, watch := 0, 0, start()
	for watch.seconds() < seconds {
		for range chunk {
			for ; pending >= amqpInFlight; pending-- {
				confirmed()
			}
			must(channel.Publish("", queues[count%partitions], false, false, message))
			count++
			pending++
		}
	}
	for ; pending > 0; pending-- {
		confirmed()
	}
	return watch.load(count)
}

func amqpConsume(urls string, partitions int, count int) load {
	connection, channel := amqpConnect(strings.Split(urls, ",")[0])
	defer connection.Close()
	must(channel.Qos(amqpPrefetch, 0, false))
	watch := start()
	messages := make(chan amqp.Delivery)
	for partition := range partitions {
		queue, err := channel.Consume(amqpQueue(partition), "", false, false, false, false, nil)
		must(err)
		go func() {
			for message := range queue {
				messages <- message
			}
		}()
	}
	for seen := 1; seen <= count; seen++ {
		select {
		case message := <-messages:
			if seen%100 == 0 || seen == count {
				must(message.Ack(true))
			}
		case <-time.After(wait):
			must(fmt.Errorf("%d of %d messages came", seen-1, count))
		}
	}
	return watch.load(count)
}

func amqpDelete(urls string, partitions int) {
	connection, channel := amqpConnect(strings.Split(urls, ",")[0])
	defer connection.Close()
	for partition := range partitions {
		_, err := channel.QueueDelete(amqpQueue(partition), false, false, false)
		must(err)
	}
}
