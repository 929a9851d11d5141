//! `GET /openapi.json`: everything the gateway serves, as one document.
//!
//! It has two parts that are kept by hand: the lease API, which its own tests hold to its code, and the rest.

use crate::answer::Answer;
use crate::lease_api::OPENAPI;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use serde_json::{Map, Value, json};
use std::sync::LazyLock;

const GATEWAY: &str = include_str!("openapi.json");
/// Marks a path of the hand-kept part that is served with the prefix of a role, too.
const ALSO_UNDER_ROLE: &str = "x-also-under-role";

static DOCUMENT: LazyLock<Bytes> = LazyLock::new(|| Bytes::from(merged().to_string()));

pub(crate) fn document() -> Response<Answer> {
    let mut response = Response::new(Answer::full(DOCUMENT.clone()));
    let json = HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

fn merged() -> Value {
    let [mut gateway, leases] = [GATEWAY, OPENAPI].map(|text| {
        // Both are constants that tests read.
        serde_json::from_str::<Value>(text).unwrap_or_default()
    });
    for (path, mut item) in members(&gateway["paths"]) {
        if let Some(members) = item.as_object_mut()
            && members.remove(ALSO_UNDER_ROLE).is_some()
        {
            gateway["paths"][format!("/{{role}}{path}")] = under_role(item.clone());
            gateway["paths"][path] = item;
        }
    }
    let admin_key = leases["security"].clone();
    for (path, item) in members(&leases["paths"]) {
        let mut item = item;
        for operation in item.as_object_mut().into_iter().flat_map(Map::values_mut) {
            if let Value::Object(operation) = operation {
                operation.entry("security").or_insert_with(|| admin_key.clone());
            }
        }
        gateway["paths"][path] = item;
    }
    for (kind, parts) in members(&leases["components"]) {
        for (name, part) in members(&parts) {
            gateway["components"][&kind][name] = part;
        }
    }
    gateway
}

/// The same path for the pools of one role alone.
fn under_role(mut item: Value) -> Value {
    let role = json!({"$ref": "#/components/parameters/roleName"});
    for (name, part) in item.as_object_mut().into_iter().flatten() {
        match part {
            Value::Array(parameters) if name == "parameters" => parameters.push(role.clone()),
            Value::Object(operation) => {
                let id = operation["operationId"].as_str().map(|id| format!("{id}OfRole"));
                operation.insert("operationId".to_owned(), id.into());
            }
            _ => {}
        }
    }
    item
}

fn members(object: &Value) -> Map<String, Value> {
    object.as_object().cloned().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::route::Endpoint;
    use std::collections::BTreeSet;

    fn gateway() -> Value {
        serde_json::from_str(GATEWAY).expect("JSON")
    }

    /// Nothing of one part hides something of the other, and every reference leads somewhere.
    #[test]
    fn the_parts_fit() {
        let leases: Value = serde_json::from_str(OPENAPI).expect("JSON");
        let document = merged();
        for part in [&gateway(), &leases] {
            for (path, item) in members(&part["paths"]) {
                for (method, operation) in members(&item) {
                    assert_eq!(
                        document["paths"][&path][&method]["operationId"], operation["operationId"],
                        "{path}"
                    );
                }
            }
            for (kind, parts) in members(&part["components"]) {
                for (name, component) in members(&parts) {
                    assert_eq!(document["components"][&kind][&name], component, "{kind}/{name}");
                }
            }
        }
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().expect("a closing quote");
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        let ids: Vec<&Value> = document["paths"]
            .as_object()
            .expect("paths")
            .values()
            .flat_map(|item| item.as_object().expect("an item").values())
            .filter_map(|operation| operation.get("operationId"))
            .collect();
        let distinct: BTreeSet<&str> = ids.iter().filter_map(|id| id.as_str()).collect();
        assert_eq!(distinct.len(), ids.len());
    }

    /// Every endpoint that the data plane serves under a role is described, and marked as such; and the reverse.
    #[test]
    fn endpoints_of_engines_are_described() {
        let described: BTreeSet<String> = members(&gateway()["paths"])
            .into_iter()
            .filter(|(_, item)| item["post"]["x-served-by"] == "engine")
            .map(|(path, _)| path)
            .collect();
        let served = Endpoint::PATHS.iter().map(|path| format!("/{{role}}/{path}"));
        assert_eq!(described, served.collect());
    }
}
