"""`cometmq doctor`: facts of a cluster, and checks over them."""
