package main

import (
	"context"
	"errors"
	"sync"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/producer"
)

var producers sync.Map

// byQueueID sends a message to the queue that the command named, and any other by its sharding key or in turn.
type byQueueID struct {
	named  sync.Map
	others producer.QueueSelector
}

func (s *byQueueID) Select(message *primitive.Message, queues []*primitive.MessageQueue, lastBroker string) *primitive.MessageQueue {
	if id, found := s.named.Load(message); found {
		for _, queue := range queues {
			if queue.QueueId == id {
				return queue
			}
		}
	}
	return s.others.Select(message, queues, lastBroker)
}

type sender struct {
	rocketmq.Producer
	selector *byQueueID
}

func startProducer(told *request) (any, error) {
	selector := &byQueueID{others: producer.NewHashQueueSelector()}
	made, err := rocketmq.NewProducer(
		producer.WithNameServer(namesrv),
		producer.WithGroupName(told.Group),
		producer.WithInstanceName(told.Name),
		producer.WithRetry(2),
		producer.WithQueueSelector(selector),
	)
	if err != nil {
		return nil, err
	}
	producers.Store(told.Name, &sender{made, selector})
	return true, made.Start()
}

func stopProducer(told *request) (any, error) {
	found, _ := producers.LoadAndDelete(told.Name)
	return true, found.(*sender).Shutdown()
}

func send(told *request) (any, error) {
	found, known := producers.Load(told.Producer)
	if !known {
		return nil, errors.New("no such producer")
	}
	from := found.(*sender)
	messages := make([]*primitive.Message, 0, len(told.Messages))
	for _, one := range told.Messages {
		messages = append(messages, message(told.Topic, one))
	}
	if told.Form == "batch" {
		result, err := from.SendSync(context.Background(), messages...)
		if err != nil {
			return nil, err
		}
		return []any{sent(result)}, nil
	}
	results := make([]any, 0, len(messages))
	for _, one := range messages {
		if told.Form == "queue" {
			from.selector.named.Store(one, told.QueueID)
		}
		result, err := sendOne(from, one, told.Form)
		if err != nil {
			return nil, err
		}
		results = append(results, sent(result))
	}
	return results, nil
}

func sendOne(from *sender, one *primitive.Message, form string) (*primitive.SendResult, error) {
	switch form {
	case "sync", "queue":
		return from.SendSync(context.Background(), one)
	case "oneway":
		return nil, from.SendOneWay(context.Background(), one)
	case "async":
		type outcome struct {
			result *primitive.SendResult
			err    error
		}
		done := make(chan outcome, 1)
		callback := func(_ context.Context, result *primitive.SendResult, err error) { done <- outcome{result, err} }
		if err := from.SendAsync(context.Background(), callback, one); err != nil {
			return nil, err
		}
		ended := <-done
		return ended.result, ended.err
	default:
		return nil, errors.New("no such form: " + form)
	}
}

func message(topic string, from sentMessage) *primitive.Message {
	made := primitive.NewMessage(topic, from.Body)
	if from.Tags != "" {
		made.WithTag(from.Tags)
	}
	if from.Keys != "" {
		made.WithKeys([]string{from.Keys})
	}
	if from.ShardingKey != "" {
		made.WithShardingKey(from.ShardingKey)
	}
	if from.DelayLevel != 0 {
		made.WithDelayTimeLevel(from.DelayLevel)
	}
	for name, value := range from.Properties {
		made.WithProperty(name, value)
	}
	return made
}

func sent(result *primitive.SendResult) any {
	if result == nil {
		return nil
	}
	status := "SEND_OK"
	if result.Status != primitive.SendOK {
		status = "NOT_OK"
	}
	return map[string]any{
		"status":      status,
		"msgId":       result.MsgID,
		"offsetMsgId": result.OffsetMsgID,
		"brokerName":  result.MessageQueue.BrokerName,
		"queueId":     result.MessageQueue.QueueId,
		"queueOffset": result.QueueOffset,
	}
}
