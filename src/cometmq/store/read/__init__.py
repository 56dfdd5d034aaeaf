"""Reading messages: by queue offset, physical offset, time and key."""
