//! `AddressRules`: which engines may be registered over the network.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use router_core::address::{Address, rules};

use crate::errors;

#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct AddressRules(pub(crate) rules::AddressRules);

#[pymethods]
impl AddressRules {
    #[new]
    #[pyo3(signature = (allowed = Vec::new()))]
    #[expect(
        clippy::needless_pass_by_value,
        reason = "the argument of a Python function is owned"
    )]
    fn new(py: Python<'_>, allowed: Vec<PyBackedStr>) -> PyResult<Self> {
        rules::AddressRules::new(allowed.iter().map(AsRef::as_ref))
            .map(Self)
            .map_err(|error| errors::from_core(py, &error))
    }

    fn check(&self, py: Python<'_>, address: &str) -> PyResult<()> {
        Address::parse(address)
            .and_then(|address| self.0.check(&address))
            .map_err(|error| errors::from_core(py, &error))
    }
}
