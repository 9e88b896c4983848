// One load on NATS or RabbitMQ, with the Go client of each, in a process of its own. Prints its figures as JSON.
//
//	loads nats-create URLS PARTITIONS              a stream of three replicas for each partition
//	loads nats-delete URLS PARTITIONS
//	loads nats-produce URLS PARTITIONS SECONDS SIZE  messages, one after the other, acknowledged later
//	loads nats-consume URLS PARTITIONS COUNT 0       ordered consumers
//	loads amqp-create URLS PARTITIONS             a quorum queue for each partition
//	loads amqp-delete URLS PARTITIONS
//	loads amqp-produce URLS PARTITIONS SECONDS SIZE
//	loads amqp-consume URLS PARTITIONS COUNT 0
//
// Message i goes to partition i modulo their number.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Messages between two looks at the clock.
const chunk = 1000

// How long the last acknowledgements may take, and a stream to have a leader.
const wait = 60 * time.Second

// Linux counts processor time for /proc in these units, on every architecture.
const ticksPerSecond = 100

// figures.Load has the same fields.
type load struct {
	Count   int      `json:"count"`
	Seconds float64  `json:"seconds"`
	ClientS float64  `json:"client_s"`
	Servers float64  `json:"servers_s"`
	P50     *float64 `json:"p50_ms"`
	P99     *float64 `json:"p99_ms"`
}

// A stopwatch of wall time, and of the processor time of this process and of the servers.
type watch struct {
	began       time.Time
	cpu, remote float64
}

func start() watch { return watch{time.Now(), cpuSeconds(), serverSeconds()} }

func (w watch) seconds() float64 { return time.Since(w.began).Seconds() }

func (w watch) load(count int) load {
	return load{Count: count, Seconds: w.seconds(), ClientS: cpuSeconds() - w.cpu, Servers: serverSeconds() - w.remote}
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	must(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

// As processor.processor_s; BENCH_PIDS has the servers' processes.
func serverSeconds() float64 {
	ticks := 0
	for _, pid := range strings.Split(os.Getenv("BENCH_PIDS"), ",") {
		if pid == "" {
			continue
		}
		text, err := os.ReadFile("/proc/" + pid + "/stat")
		must(err)
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		ticks += number(fields[11]) + number(fields[12])
	}
	return float64(ticks) / ticksPerSecond
}

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func number(text string) int {
	value, err := strconv.Atoi(text)
	must(err)
	return value
}

func main() {
	name, where, partitions := os.Args[1], os.Args[2], number(os.Args[3])
	amount, size := 0.0, 0
	if len(os.Args) > 4 {
		var err error
		amount, err = strconv.ParseFloat(os.Args[4], 64)
		must(err)
		size = number(os.Args[5])
	}
	var done load
	switch name {
	case "nats-create":
		natsCreate(where, partitions)
	case "nats-delete":
		natsDelete(where, partitions)
	case "nats-produce":
		done = natsProduce(where, partitions, size, amount)
	case "nats-consume":
		done = natsConsume(where, partitions, int(amount))
	case "amqp-create":
		amqpCreate(where, partitions)
	case "amqp-delete":
		amqpDelete(where, partitions)
	case "amqp-produce":
		done = amqpProduce(where, partitions, size, amount)
	case "amqp-consume":
		done = amqpConsume(where, partitions, int(amount))
	default:
		must(fmt.Errorf("no load %q", name))
	}
	must(json.NewEncoder(os.Stdout).Encode(done))
}
