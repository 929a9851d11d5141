//! The document against the code: every route, every code, and nothing else.

use super::super::error;
use super::super::request;
use super::super::route::{Call, PoolCall, parse};
use super::*;
use serde::Deserialize;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::BTreeSet;

fn document() -> Value {
    serde_json::from_str(DOCUMENT).expect("JSON")
}

/// Every call with the path template under which it is described, and its query parameters.
fn templates() -> Vec<(&'static str, String, &'static [&'static str])> {
    let name = Cow::default;
    let calls = [
        PoolCall::Show,
        PoolCall::AddBackends,
        PoolCall::RemoveBackend(name()),
        PoolCall::AttachOwner,
        PoolCall::Acknowledge(name()),
        PoolCall::AttachSender,
        PoolCall::Heartbeat(name()),
        PoolCall::DetachSender(name()),
        PoolCall::Acquire,
        PoolCall::Settle(name()),
        PoolCall::Batch,
        PoolCall::CloseSession(name()),
        PoolCall::Fence,
        PoolCall::Unfence,
        PoolCall::BeginUpdate,
        PoolCall::Drain(name()),
        PoolCall::Resume(name()),
        PoolCall::Publish(name()),
        PoolCall::FailUpdate(name()),
        PoolCall::CancelUpdate(name()),
        PoolCall::Fail,
        PoolCall::Close,
    ];
    let mut templates = vec![
        describe(&Call::OpenApi, "/v1/router/openapi.json".to_owned()),
        describe(&Call::Pools, "/v1/router/pools".to_owned()),
    ];
    for call in calls {
        // A call that is added to the type does not compile here before it has its template.
        let tail = match &call {
            PoolCall::Show => "",
            PoolCall::AddBackends => "/backends",
            PoolCall::RemoveBackend(_) => "/backends/{backend}",
            PoolCall::AttachOwner => "/owners",
            PoolCall::Acknowledge(_) => "/owners/{owner}/ack",
            PoolCall::AttachSender => "/senders",
            PoolCall::Heartbeat(_) => "/senders/{sender}/heartbeat",
            PoolCall::DetachSender(_) => "/senders/{sender}",
            PoolCall::Acquire => "/leases",
            PoolCall::Settle(_) => "/leases/{lease}/settle",
            PoolCall::Batch => "/leases:batch",
            PoolCall::CloseSession(_) => "/sessions/{session}/close",
            PoolCall::Fence => "/fence",
            PoolCall::Unfence => "/unfence",
            PoolCall::BeginUpdate => "/updates",
            PoolCall::Drain(_) => "/updates/{update}/drain",
            PoolCall::Resume(_) => "/updates/{update}/resume",
            PoolCall::Publish(_) => "/updates/{update}/publish",
            PoolCall::FailUpdate(_) => "/updates/{update}/fail",
            PoolCall::CancelUpdate(_) => "/updates/{update}/cancel",
            PoolCall::Fail => "/fail",
            PoolCall::Close => "/close",
        };
        let path = format!("/v1/router/pools/{{role}}/{{model}}{tail}");
        let pool = super::super::route::PoolName {
            role: "{role}".into(),
            model: "{model}".into(),
        };
        let parsed = parse(&path).expect("a call");
        let parsed_kind = match &parsed {
            Call::Pool { pool: name, call } => {
                assert_eq!(*name, pool);
                std::mem::discriminant(call)
            }
            _ => panic!("{path} is no call on a pool"),
        };
        assert_eq!(parsed_kind, std::mem::discriminant(&call), "{path}");
        templates.push(describe(&parsed, path.clone()));
    }
    templates
}

fn describe(call: &Call<'_>, path: String) -> (&'static str, String, &'static [&'static str]) {
    (call.method(), path, call.parameters())
}

/// Every route is described, with its method; nothing else is.
#[test]
fn every_route_is_described() {
    let document = document();
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .expect("paths")
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().expect("operations").keys();
            methods
                .filter(|key| *key != "parameters")
                .map(move |method| (method.to_ascii_uppercase(), path.clone()))
        })
        .collect();
    let served: BTreeSet<(String, String)> = templates()
        .into_iter()
        .map(|(method, path, _)| (method.to_owned(), path))
        .collect();
    assert_eq!(described, served);
}

/// Every query parameter is described where it is taken, and nowhere else.
#[test]
fn every_parameter_is_described() {
    let document = document();
    for (method, path, parameters) in templates() {
        let described = &document["paths"][&path][method.to_ascii_lowercase()]["parameters"];
        let described: BTreeSet<&str> = described
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|parameter| parameter["name"].as_str())
            .collect();
        assert_eq!(described, parameters.iter().copied().collect(), "{method} {path}");
    }
}

/// Every code is described under every status it is sent with, and in the schema of errors; nothing else is.
#[test]
fn every_code_is_described() {
    let document = document();
    let described: BTreeSet<(u16, String)> = document["x-error-codes"]
        .as_object()
        .expect("codes by status")
        .iter()
        .flat_map(|(status, codes)| {
            let status: u16 = status.parse().expect("a status");
            let codes = codes.as_array().expect("codes");
            codes
                .iter()
                .map(move |code| (status, code.as_str().expect("a code").to_owned()))
        })
        .collect();
    let sent: BTreeSet<(u16, String)> = error::tests::vocabulary()
        .into_iter()
        .map(|(status, code)| (status, code.to_owned()))
        .collect();
    assert_eq!(described, sent);

    let listed = &document["components"]["schemas"]["Error"]["properties"]["error"]["properties"]["code"]["enum"];
    let listed: BTreeSet<&str> = listed
        .as_array()
        .expect("codes")
        .iter()
        .filter_map(Value::as_str)
        .collect();
    let codes: BTreeSet<&str> = sent.iter().map(|(_, code)| code.as_str()).collect();
    assert_eq!(listed, codes);
}

/// The members that a body may have, in the words of its own refusal of another one.
fn members<T: Deserialize<'static> + std::fmt::Debug>() -> BTreeSet<String> {
    let refusal = serde_json::from_str::<T>("{\"?\":0}")
        .expect_err("an unknown member")
        .to_string();
    let quoted = refusal.split('`').skip(1).step_by(2);
    quoted.filter(|name| *name != "?").map(str::to_owned).collect()
}

/// Every member of every body is described, and no other.
#[test]
fn every_member_is_described() {
    let document = document();
    let resolve = |value: &Value| match value["$ref"].as_str() {
        Some(reference) => document.pointer(&reference[1..]).expect("a target").clone(),
        None => value.clone(),
    };
    let body = |path: &str| {
        let path = format!("/v1/router/pools/{{role}}/{{model}}{path}");
        resolve(&document["paths"][&path]["post"]["requestBody"]["content"]["application/json"]["schema"])
    };
    let items = |path: &str, member: &str| body(path)["properties"][member]["items"].clone();
    for (described, taken) in [
        (body("/backends"), members::<request::AddBackends>()),
        (items("/backends", "backends"), members::<request::NewBackend>()),
        (body("/owners"), members::<request::AttachOwner>()),
        (body("/owners/{owner}/ack"), members::<request::Acknowledge>()),
        (body("/senders"), members::<request::AttachSender>()),
        (items("/senders", "adopt"), members::<request::Held>()),
        (items("/senders", "pins"), members::<request::Pin>()),
        (body("/senders/{sender}/heartbeat"), members::<request::Heartbeat>()),
        (body("/leases"), members::<request::Acquire<'_>>()),
        (body("/leases/{lease}/settle"), members::<request::Settle<'_>>()),
        (body("/leases:batch"), members::<request::Batch<'_>>()),
        (body("/sessions/{session}/close"), members::<request::CloseSession>()),
        (body("/fence"), members::<request::Fence>()),
        (body("/unfence"), members::<request::Fence>()),
        (body("/updates"), members::<request::BeginUpdate>()),
        (body("/updates/{update}/drain"), members::<request::Drain>()),
        (body("/updates/{update}/resume"), members::<request::Nothing>()),
        (body("/updates/{update}/publish"), members::<request::Publish>()),
        (body("/updates/{update}/fail"), members::<request::Reason>()),
        (body("/updates/{update}/cancel"), members::<request::Nothing>()),
        (body("/fail"), members::<request::Reason>()),
        (body("/close"), members::<request::ClosePool>()),
    ] {
        let described: BTreeSet<String> = described["properties"]
            .as_object()
            .unwrap_or_else(|| panic!("no description of {taken:?}"))
            .keys()
            .cloned()
            .collect();
        assert_eq!(described, taken);
    }
}

/// Every reference leads somewhere.
#[test]
fn references_resolve() {
    fn walk(value: &Value, document: &Value) {
        match value {
            Value::Object(members) => {
                if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                    let pointer = reference.strip_prefix('#').expect("a local reference");
                    assert!(document.pointer(pointer).is_some(), "{reference}");
                }
                members.values().for_each(|value| walk(value, document));
            }
            Value::Array(items) => items.iter().for_each(|value| walk(value, document)),
            _ => {}
        }
    }
    let document = document();
    assert!(
        document["openapi"]
            .as_str()
            .is_some_and(|version| version.starts_with("3.1"))
    );
    walk(&document, &document);
}
