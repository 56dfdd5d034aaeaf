package main

import (
	"context"
	"errors"
	"sync"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
)

var (
	consumers sync.Map
	pullers   sync.Map
)

func startPush(told *request) (any, error) {
	options := []consumer.Option{
		consumer.WithNameServer(namesrv),
		consumer.WithGroupName(told.Group),
		consumer.WithInstance(told.Name),
		consumer.WithConsumeFromWhere(consumer.ConsumeFromFirstOffset),
		consumer.WithConsumerOrder(told.Ordered),
	}
	if told.Broadcast {
		options = append(options, consumer.WithConsumerModel(consumer.BroadCasting))
	}
	if told.MaxTries != 0 {
		options = append(options, consumer.WithMaxReconsumeTimes(told.MaxTries))
	}
	if told.SuspendMs != 0 {
		options = append(options, consumer.WithSuspendCurrentQueueTimeMillis(time.Duration(told.SuspendMs)*time.Millisecond))
	}
	made, err := rocketmq.NewPushConsumer(options...)
	if err != nil {
		return nil, err
	}
	for _, topic := range told.Topics {
		if err := made.Subscribe(topic, selector(told), listener(told)); err != nil {
			return nil, err
		}
	}
	consumers.Store(told.Name, made)
	return told.Name, made.Start()
}

func selector(told *request) consumer.MessageSelector {
	if told.SQL != "" {
		return consumer.MessageSelector{Type: consumer.SQL92, Expression: told.SQL}
	}
	return consumer.MessageSelector{Type: consumer.TAG, Expression: told.Tags}
}

// listener prints what it is given, and fails while a message has been tried fewer than so many times.
func listener(told *request) func(context.Context, ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
	return func(ctx context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
		print(map[string]any{"consumer": told.Name, "messages": received(messages)})
		if concurrently, is := primitive.GetConcurrentlyCtx(ctx); is && told.RetryLevel != 0 {
			concurrently.DelayLevelWhenNextConsume = told.RetryLevel
		}
		for _, one := range messages {
			if one.ReconsumeTimes < told.Failures {
				if told.Ordered {
					return consumer.SuspendCurrentQueueAMoment, nil
				}
				return consumer.ConsumeRetryLater, nil
			}
		}
		return consumer.ConsumeSuccess, nil
	}
}

func received(messages []*primitive.MessageExt) []any {
	shown := make([]any, 0, len(messages))
	for _, one := range messages {
		shown = append(shown, map[string]any{
			"topic":          one.Topic,
			"body":           one.Body,
			"msgId":          one.MsgId,
			"offsetMsgId":    one.OffsetMsgId,
			"brokerName":     one.Queue.BrokerName,
			"queueId":        one.Queue.QueueId,
			"queueOffset":    one.QueueOffset,
			"reconsumeTimes": one.ReconsumeTimes,
			"bornTimestamp":  one.BornTimestamp,
			"storeTimestamp": one.StoreTimestamp,
			"properties":     one.GetProperties(),
			"at":             time.Now().UnixMilli(),
		})
	}
	return shown
}

func stopPush(told *request) (any, error) {
	found, known := consumers.LoadAndDelete(told.Name)
	if !known {
		return nil, errors.New("no such consumer")
	}
	return true, found.(rocketmq.PushConsumer).Shutdown()
}

func startPuller(told *request) (any, error) {
	made, err := rocketmq.NewPullConsumer(
		consumer.WithNameServer(namesrv),
		consumer.WithGroupName(told.Group),
		consumer.WithInstance(told.Name),
	)
	if err != nil {
		return nil, err
	}
	if err := made.Subscribe(told.Topic, consumer.MessageSelector{Type: consumer.TAG, Expression: "*"}); err != nil {
		return nil, err
	}
	pullers.Store(told.Name, made)
	return true, made.Start()
}

func pull(told *request) (any, error) {
	found, known := pullers.Load(told.Name)
	if !known {
		return nil, errors.New("no such consumer")
	}
	queue := &primitive.MessageQueue{Topic: told.Topic, BrokerName: told.BrokerName, QueueId: told.QueueID}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	result, err := found.(rocketmq.PullConsumer).PullFrom(ctx, queue, told.Offset, told.Max)
	if err != nil {
		return nil, err
	}
	return map[string]any{
		"status":   int(result.Status),
		"next":     result.NextBeginOffset,
		"min":      result.MinOffset,
		"max":      result.MaxOffset,
		"messages": received(result.GetMessageExts()),
	}, nil
}
