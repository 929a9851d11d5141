"""The dashboard: static files, which read ``GET /status`` like anybody else."""
