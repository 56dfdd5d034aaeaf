// The Node client as a program that does what it is told: commands come in as JSON lines, answers and events go out
// as JSON lines. Usage: node driver.js NAMESRV
'use strict';

const readline = require('readline');
const httpclient = require('urllib');
const { Consumer, Message, Producer } = require('ali-ons');

const namesrv = process.argv[2];
const producers = new Map();
const consumers = new Map();

const print = line => process.stdout.write(JSON.stringify(line) + '\n');
const complain = problem => process.stderr.write(`${problem && problem.stack || problem}\n`);
const quiet = { info() {}, warn: complain, error: complain, debug() {} };

const common = told => ({ httpclient, nameSrv: namesrv, instanceName: told.name, logger: quiet });

async function startProducer(told) {
  const producer = new Producer({ ...common(told), producerGroup: told.group });
  producer.on('error', complain);
  await producer.ready();
  producers.set(told.name, producer);
  return true;
}

async function stopProducer(told) {
  await producers.get(told.name).close();
  return true;
}

function message(topic, from) {
  const made = new Message(topic, from.tags || null, Buffer.from(from.body, 'base64'));
  if (from.keys) made.keys = from.keys.split(' ');
  if (from.delayLevel) made.delayTimeLevel = from.delayLevel;
  for (const [name, value] of Object.entries(from.properties || {})) made.properties[name] = value;
  return made;
}

async function send(told) {
  const results = [];
  for (const one of told.messages) {
    const result = await producers.get(told.producer).send(message(told.topic, one));
    results.push({
      status: result.sendStatus,
      msgId: result.msgId,
      brokerName: result.messageQueue.brokerName,
      queueId: Number(result.messageQueue.queueId),
      queueOffset: Number(result.queueOffset),
    });
  }
  return results;
}

const received = one => ({
  topic: one.topic,
  body: one.body.toString('base64'),
  msgId: one.msgId,
  queueId: one.queueId,
  queueOffset: Number(one.queueOffset),
  reconsumeTimes: one.reconsumeTimes,
  bornTimestamp: Number(one.bornTimestamp),
  storeTimestamp: Number(one.storeTimestamp),
  properties: one.properties,
  at: Date.now(),
});

async function startConsumer(told) {
  const consumer = new Consumer({
    ...common(told),
    consumerGroup: told.group,
    isBroadcast: Boolean(told.broadcast),
    consumeFromWhere: 'CONSUME_FROM_FIRST_OFFSET',
  });
  consumer.on('error', complain);
  for (const topic of told.topics) {
    const expression = told.sql ? { expressionType: 'SQL92', subString: told.sql } : told.tags;
    consumer.subscribe(topic, expression, async one => {
      print({ consumer: told.name, messages: [ received(one) ] });
      if (one.reconsumeTimes < (told.failures || 0)) throw new Error('failed on purpose');
    });
  }
  await consumer.ready();
  consumers.set(told.name, consumer);
  return told.name;
}

async function stopConsumer(told) {
  await consumers.get(told.name).close();
  return true;
}

const commands = {
  producer: startProducer,
  stopProducer,
  send,
  push: startConsumer,
  stop: stopConsumer,
};

readline.createInterface({ input: process.stdin }).on('line', async line => {
  const told = JSON.parse(line);
  try {
    print({ id: told.id, ok: await commands[told.do](told) });
  } catch (problem) {
    complain(problem);
    print({ id: told.id, error: String(problem), code: Number(problem.code) || -1 });
  }
}).on('close', () => process.exit(0));
