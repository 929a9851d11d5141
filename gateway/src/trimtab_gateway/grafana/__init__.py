"""The Grafana dashboard of this version: ``python -m trimtab_gateway.grafana > trimtab.json``."""
