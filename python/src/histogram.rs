//! Durations as Python sees them.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyTuple};
use router_core::histogram::{BOUNDS, Histogram as CoreHistogram};
use std::time::Duration;

/// Durations, counted in buckets.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct Histogram(pub(crate) CoreHistogram);

#[pymethods]
impl Histogram {
    #[classattr]
    #[pyo3(name = "BOUNDS_S")]
    fn bounds(py: Python<'_>) -> PyResult<Py<PyTuple>> {
        let seconds = BOUNDS.map(|bound| Duration::from_nanos(bound).as_secs_f64());
        PyTuple::new(py, seconds).map(Bound::unbind)
    }

    #[getter]
    fn cumulative(&self) -> Vec<u64> {
        self.0.cumulative().to_vec()
    }

    #[getter]
    fn count(&self) -> u64 {
        self.0.count()
    }

    #[getter]
    fn sum_s(&self) -> f64 {
        self.0.sum().as_secs_f64()
    }
}

/// Histograms by name; those without counts are left out.
pub(crate) fn named<'py, 'h>(
    py: Python<'py>,
    histograms: impl Iterator<Item = (&'static str, &'h CoreHistogram)>,
) -> PyResult<Bound<'py, PyDict>> {
    let dict = PyDict::new(py);
    for (name, histogram) in histograms {
        if histogram.count() > 0 {
            dict.set_item(name, Histogram(histogram.clone()))?;
        }
    }
    Ok(dict)
}
