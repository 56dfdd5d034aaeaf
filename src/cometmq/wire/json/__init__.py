"""fastjson's dialect: reading and writing what RocketMQ's own JSON looks like."""
