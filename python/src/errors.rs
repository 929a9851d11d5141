//! Core errors as the typed exceptions of `trimtab.errors`.

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use router_core::error::Error;

static ERRORS: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

fn module(py: Python<'_>) -> PyResult<&Bound<'_, PyModule>> {
    let module = ERRORS.get_or_try_init(py, || PyResult::Ok(py.import("trimtab.errors")?.unbind()))?;
    Ok(module.bind(py))
}

/// An exception of `trimtab.errors` by its class name.
pub(crate) fn raise(py: Python<'_>, class: &str, message: &str) -> PyErr {
    let build = || module(py)?.getattr(class)?.call1((message,));
    match build() {
        Ok(exception) => PyErr::from_value(exception),
        Err(error) => error,
    }
}

/// The exception of a core error, by its code.
pub(crate) fn from_core(py: Python<'_>, error: &Error) -> PyErr {
    of_code(py, error.code(), &error.to_string(), error.retryable())
}

/// The exception of a code.
pub(crate) fn of_code(py: Python<'_>, code: &str, message: &str, retryable: bool) -> PyErr {
    let build = || {
        let arguments = PyDict::new(py);
        arguments.set_item("retryable", retryable)?;
        module(py)?.getattr("error_of")?.call((code, message), Some(&arguments))
    };
    match build() {
        Ok(exception) => PyErr::from_value(exception),
        Err(failed) => failed,
    }
}

pub(crate) fn invalid_request(py: Python<'_>, message: &str) -> PyErr {
    raise(py, "InvalidRequest", message)
}

/// A positive, finite number of seconds.
pub(crate) fn seconds(py: Python<'_>, name: &str, value: f64) -> PyResult<std::time::Duration> {
    std::time::Duration::try_from_secs_f64(value)
        .ok()
        .filter(|duration| !duration.is_zero())
        .ok_or_else(|| {
            invalid_request(
                py,
                &format!("{name} is {value}: it must be a finite number of seconds above 0"),
            )
        })
}

/// A whole number from 1 to 2^32 - 1.
pub(crate) fn count(py: Python<'_>, name: &str, value: i64) -> PyResult<u32> {
    u32::try_from(value).ok().filter(|count| *count > 0).ok_or_else(|| {
        invalid_request(
            py,
            &format!("{name} is {value}: it must be a whole number from 1 to {}", u32::MAX),
        )
    })
}
