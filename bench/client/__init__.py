"""The Python client beside the C++ client's binding."""
