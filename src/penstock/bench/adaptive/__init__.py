"""Live runs under changing load: is the stated latency kept, and what does that cost? `penstock bench adaptive`."""
