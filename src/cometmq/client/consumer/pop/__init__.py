"""The pop consumer: receive with an invisible time, acknowledge, change that time."""
