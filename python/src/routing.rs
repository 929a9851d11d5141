//! `RoutingTable` and `Route`: the resolver of the gateway, for direct clients.

use std::borrow::Cow;

use pyo3::exceptions::{PyKeyError, PyTypeError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString};
use router_core::routing::{self, RouteMode, RoutingSpec, Selector, SessionField};

use crate::errors;

/// Where a request goes.
#[pyclass(frozen, eq, hash, module = "trimtab._core")]
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct Route {
    #[pyo3(get)]
    model: String,
    #[pyo3(get)]
    router_url: Option<String>,
}

/// A frozen routing table.
#[pyclass(frozen, module = "trimtab._core")]
pub(crate) struct RoutingTable(routing::RoutingTable);

#[pymethods]
impl RoutingTable {
    #[new]
    #[pyo3(signature = (
        role, models, *, router_urls = None, route_keys = None, default_model = None, lenient_model = false,
        session_fields = Vec::new(),
    ))]
    #[expect(clippy::too_many_arguments, reason = "the keyword arguments of a Python function")]
    fn new(
        py: Python<'_>,
        role: String,
        models: Vec<String>,
        router_urls: Option<&Bound<'_, PyMapping>>,
        route_keys: Option<&Bound<'_, PyMapping>>,
        default_model: Option<String>,
        lenient_model: bool,
        session_fields: Vec<String>,
    ) -> PyResult<Self> {
        let urls = pairs(router_urls)?;
        let mode = |model: &str| {
            let router = urls.iter().find(|(name, _)| name == model);
            router.map_or(RouteMode::Direct, |(_, url)| RouteMode::Router { url: url.clone() })
        };
        let spec = RoutingSpec {
            role,
            models: models.into_iter().map(|name| (name.clone(), mode(&name))).collect(),
            route_keys: pairs(route_keys)?,
            default_model,
            lenient_model,
            session_fields: fields(py, session_fields)?,
        };
        match routing::RoutingTable::new(spec) {
            Ok(table) => Ok(Self(table)),
            Err(error) => Err(errors::invalid_request(py, &error.to_string())),
        }
    }

    #[staticmethod]
    fn from_discovery(document: &Bound<'_, PyMapping>) -> PyResult<Self> {
        let py = document.py();
        read(document).map_err(|error| {
            if error.is_instance_of::<PyTypeError>(py) || error.is_instance_of::<PyKeyError>(py) {
                let message = format!("the discovery document is refused: {}", error.value(py));
                errors::invalid_request(py, &message)
            } else {
                error
            }
        })
    }

    fn resolve(&self, request: &Bound<'_, PyMapping>) -> PyResult<Route> {
        let (model, key) = (optional(request, "model")?, optional(request, "route_key")?);
        let (model, key) = (Given::read(model.as_ref())?, Given::read(key.as_ref())?);
        match self.0.resolve(model.selector(), key.selector()) {
            Ok(route) => Ok(Route {
                model: route.name.to_owned(),
                router_url: match route.mode {
                    RouteMode::Direct => None,
                    RouteMode::Router { url } => Some(url.clone()),
                },
            }),
            Err(error) => Err(errors::of_code(
                request.py(),
                error.code().as_str(),
                &error.to_string(),
                false,
            )),
        }
    }

    fn session(&self, request: &Bound<'_, PyMapping>) -> PyResult<Option<String>> {
        for field in self.0.session_fields() {
            let Some(value) = optional(request, field.as_str())?.filter(|value| !value.is_none()) else {
                continue;
            };
            return match text(&value)? {
                Some(text) => Ok(Some(text.into_owned())),
                None => {
                    let message = format!("{:?} names the session and must be a string", field.as_str());
                    Err(errors::invalid_request(request.py(), &message))
                }
            };
        }
        Ok(None)
    }

    #[getter]
    fn role(&self) -> &str {
        self.0.role()
    }

    #[getter]
    fn models(&self) -> Vec<String> {
        self.0.models().map(|route| route.name.to_owned()).collect()
    }
}

fn read(document: &Bound<'_, PyMapping>) -> PyResult<RoutingTable> {
    let py = document.py();
    let routing = mapping(document, "routing")?;
    let mut models = Vec::new();
    let urls = PyDict::new(py);
    for item in mapping(document, "models")?.items()? {
        let (name, described): (String, Bound<'_, PyMapping>) = item.extract()?;
        if let Some(url) = string(&described, "router_url")? {
            urls.set_item(&name, url)?;
        }
        models.push(name);
    }
    let lenient = optional(document, "lenient_model")?.map_or(Ok(false), |value| value.extract())?;
    let session_fields = optional(&routing, "session_fields")?.map_or(Ok(Vec::new()), |value| value.extract())?;
    RoutingTable::new(
        py,
        string(document, "role")?.unwrap_or_default(),
        models,
        Some(urls.as_mapping()),
        Some(&mapping(&routing, "route_keys")?),
        string(&routing, "default_model")?,
        lenient,
        session_fields,
    )
}

fn string(holder: &Bound<'_, PyMapping>, key: &str) -> PyResult<Option<String>> {
    optional(holder, key)?.map_or(Ok(None), |value| value.extract())
}

fn mapping<'py>(holder: &Bound<'py, PyMapping>, key: &str) -> PyResult<Bound<'py, PyMapping>> {
    match optional(holder, key)?.filter(|value| !value.is_none()) {
        Some(value) => Ok(value.cast_into::<PyMapping>()?),
        None => Ok(PyDict::new(holder.py()).into_mapping()),
    }
}

fn optional<'py>(holder: &Bound<'py, PyMapping>, key: &str) -> PyResult<Option<Bound<'py, PyAny>>> {
    if holder.contains(key)? {
        holder.get_item(key).map(Some)
    } else {
        Ok(None)
    }
}

/// The text of a string, its lone surrogates replaced, as the gateway reads them; `None` for another value.
fn text<'a>(value: &'a Bound<'_, PyAny>) -> PyResult<Option<Cow<'a, str>>> {
    let Ok(text) = value.cast::<PyString>() else {
        return Ok(None);
    };
    if let Ok(text) = text.to_str() {
        return Ok(Some(Cow::Borrowed(text)));
    }
    let bytes: Vec<u8> = text.call_method1("encode", ("utf-16-le", "surrogatepass"))?.extract()?;
    let units = bytes.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
    let replaced = char::decode_utf16(units).map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER));
    Ok(Some(Cow::Owned(replaced.collect())))
}

/// A selector's value: absent, or its text, or something else.
enum Given<'a> {
    Absent,
    Text(Cow<'a, str>),
    NotText,
}

impl<'a> Given<'a> {
    fn read(value: Option<&'a Bound<'_, PyAny>>) -> PyResult<Self> {
        let Some(value) = value else { return Ok(Self::Absent) };
        Ok(text(value)?.map_or(Self::NotText, Self::Text))
    }

    fn selector(&self) -> Selector<'_> {
        match self {
            Self::Absent => Selector::Absent,
            Self::Text(text) => Selector::Text(text),
            Self::NotText => Selector::NotText,
        }
    }
}

/// The text pairs of a mapping.
pub(crate) fn pairs(mapping: Option<&Bound<'_, PyMapping>>) -> PyResult<Vec<(String, String)>> {
    let Some(mapping) = mapping else { return Ok(Vec::new()) };
    mapping.items()?.iter().map(|item| item.extract()).collect()
}

/// Session fields by their names.
pub(crate) fn fields(py: Python<'_>, names: Vec<String>) -> PyResult<Vec<SessionField>> {
    let known = SessionField::ALL.map(SessionField::as_str).join(", ");
    names
        .into_iter()
        .map(|name| {
            SessionField::parse(&name).ok_or_else(|| {
                errors::invalid_request(py, &format!("session field {name:?} is refused; known: {known}"))
            })
        })
        .collect()
}
