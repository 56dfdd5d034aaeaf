"""A simulated disk that crashes, fills up and fails as a test wants it."""
