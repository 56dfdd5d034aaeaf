"""The broker among others: registration with name servers, heartbeats, addresses."""
