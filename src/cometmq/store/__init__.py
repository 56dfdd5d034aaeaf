"""RocketMQ's files: commit log, consume queues, index, checkpoint, timer files; flush, recovery, retention.

All access to the disk and the clock goes through `ports/`, so that tests can put simulated ones there.
"""
