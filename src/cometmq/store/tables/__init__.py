"""The JSON tables of a broker (`config/`): topics, groups, offsets."""
