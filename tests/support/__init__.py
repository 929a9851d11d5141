"""Test kit: an engine that controls every byte, a client that can stop at any byte, and the end-of-test check."""
