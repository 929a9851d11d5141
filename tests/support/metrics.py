"""Reading the Prometheus text that gateways and engines serve."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families


def sum_metric(text: str, name: str, **labels: str) -> float:
    """Return the sum of all samples called ``name`` that carry ``labels``; 0 when there is none."""
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and labels.items() <= sample.labels.items()
    )
