// Command driver is the Go client as a program that does what it is told: commands come in as JSON lines, answers
// and events go out as JSON lines. Usage: driver NAMESRV
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sync"

	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const maxLineBytes = 64 << 20

type request struct {
	ID   int    `json:"id"`
	Do   string `json:"do"`
	Name string `json:"name"`

	// of a producer
	Group    string        `json:"group"`
	Producer string        `json:"producer"`
	Topic    string        `json:"topic"`
	Form     string        `json:"form"`
	Messages []sentMessage `json:"messages"`
	QueueID  int           `json:"queueId"`

	// of a consumer
	Topics     []string `json:"topics"`
	Tags       string   `json:"tags"`
	SQL        string   `json:"sql"`
	Ordered    bool     `json:"ordered"`
	Broadcast  bool     `json:"broadcast"`
	Failures   int32    `json:"failures"`
	RetryLevel int      `json:"retryLevel"`
	MaxTries   int32    `json:"maxTries"`
	SuspendMs  int      `json:"suspendMillis"`
	BrokerName string   `json:"brokerName"`
	Offset     int64    `json:"offset"`
	Max        int      `json:"max"`
}

type sentMessage struct {
	Body        []byte            `json:"body"`
	Tags        string            `json:"tags"`
	Keys        string            `json:"keys"`
	ShardingKey string            `json:"shardingKey"`
	DelayLevel  int               `json:"delayLevel"`
	Properties  map[string]string `json:"properties"`
}

type command func(*request) (any, error)

var (
	console sync.Mutex
	namesrv []string
)

func main() {
	rlog.SetLogLevel("error")
	namesrv = []string{os.Args[1]}
	commands := map[string]command{
		"producer":     startProducer,
		"send":         send,
		"stopProducer": stopProducer,
		"push":         startPush,
		"stop":         stopPush,
		"puller":       startPuller,
		"pull":         pull,
	}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(make([]byte, 0, 1<<20), maxLineBytes)
	for lines.Scan() {
		var told request
		if err := json.Unmarshal(lines.Bytes(), &told); err != nil {
			fmt.Fprintln(os.Stderr, err)
			continue
		}
		go answer(commands, &told)
	}
}

func answer(commands map[string]command, told *request) {
	run, known := commands[told.Do]
	if !known {
		print(map[string]any{"id": told.ID, "error": "no such command"})
		return
	}
	result, err := run(told)
	if err != nil {
		print(map[string]any{"id": told.ID, "error": err.Error()})
		return
	}
	print(map[string]any{"id": told.ID, "ok": result})
}

func print(line map[string]any) {
	text, err := json.Marshal(line)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return
	}
	console.Lock()
	defer console.Unlock()
	fmt.Println(string(text))
}
