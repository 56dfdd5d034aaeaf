"""Load generators: frames, connections, dialogues, results of a run."""
