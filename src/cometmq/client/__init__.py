"""The client: producers, consumers and administration, written once in asyncio, with a blocking face."""
