"""What `cometmq doctor` looks at: one module a kind of trouble; each check gets facts and gives findings."""
