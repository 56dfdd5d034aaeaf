"""Commands that administer a cluster: `topic`, `group`, `message`, `cluster`, `config`, `dlq`."""
