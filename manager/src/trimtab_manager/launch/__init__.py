"""Launchers: how an engine's processes come to be, and how they end."""
