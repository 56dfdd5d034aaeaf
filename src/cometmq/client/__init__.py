"""The client: producers, consumers and the admin client, written once in asyncio, with blocking twins."""
