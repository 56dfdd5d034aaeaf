"""The parts of the pull consumer, which RocketMQ calls lite pull consumer."""
