"""Headers of commands, as JSON and in RocketMQ's binary form."""
