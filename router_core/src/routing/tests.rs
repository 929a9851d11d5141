use super::*;
use Selector::{Absent, NotText, Text};
use proptest::prelude::*;

fn spec(models: &[&str], keys: &[(&str, &str)], default: Option<&str>) -> RoutingSpec {
    RoutingSpec {
        role: "teacher".to_owned(),
        models: models
            .iter()
            .map(|name| ((*name).to_owned(), RouteMode::Direct))
            .collect(),
        route_keys: keys
            .iter()
            .map(|(key, model)| ((*key).to_owned(), (*model).to_owned()))
            .collect(),
        default_model: default.map(str::to_owned),
        ..RoutingSpec::default()
    }
}

fn table(models: &[&str], keys: &[(&str, &str)], default: Option<&str>) -> RoutingTable {
    RoutingTable::new(spec(models, keys, default)).expect("a valid table")
}

fn code(result: Result<Route<'_>, RoutingError>) -> RoutingCode {
    result.expect_err("refused").code()
}

/// Explicit model, then route key, then default, then 400.
#[test]
fn the_order_of_routing() {
    let two = table(&["math", "code"], &[("openai/gsm8k", "math")], Some("code"));
    let model = |model, key| two.resolve(model, key).expect("routed").name;
    assert_eq!(model(Text("code"), Text("openai/gsm8k")), "code");
    assert_eq!(model(Text("code"), Text("nobody knows it")), "code");
    assert_eq!(model(Absent, Text("openai/gsm8k")), "math");
    assert_eq!(model(Absent, Absent), "code");
    let none = table(&["math", "code"], &[], None);
    assert_eq!(code(none.resolve(Absent, Absent)), RoutingCode::ModelRequired);
    assert_eq!(
        table(&["math"], &[], None)
            .resolve(Absent, Absent)
            .expect("routed")
            .name,
        "math"
    );
}

/// What is unknown is refused and lists what is known; nothing falls through.
#[test]
fn unknown_selectors_do_not_fall_through() {
    let sole = table(&["math"], &[("gsm", "math")], None);
    let error = sole.resolve(Text("maths"), Text("gsm")).expect_err("refused");
    assert_eq!(error.code(), RoutingCode::UnknownModel);
    assert!(error.to_string().contains("\"maths\"; known: math"), "{error}");
    let error = sole.resolve(Absent, Text("aime")).expect_err("refused");
    assert_eq!(error.code(), RoutingCode::UnknownRouteKey);
    assert!(error.to_string().contains("known: gsm;"), "{error}");
}

/// An empty selector and one that is no string are mistakes, whichever selector decides.
#[test]
fn malformed_selectors_are_refused() {
    let sole = table(&["math"], &[("gsm", "math")], None);
    assert_eq!(code(sole.resolve(Text(""), Absent)), RoutingCode::InvalidModel);
    assert_eq!(code(sole.resolve(NotText, Text("gsm"))), RoutingCode::InvalidModel);
    assert_eq!(code(sole.resolve(Text("math"), Text(""))), RoutingCode::InvalidRouteKey);
    assert_eq!(code(sole.resolve(Text("math"), NotText)), RoutingCode::InvalidRouteKey);
}

/// A lenient role ignores any string, but no other value, and only while it has one model.
#[test]
fn lenient_models() {
    let lenient = |models: &[&str]| {
        let spec = RoutingSpec {
            lenient_model: true,
            ..spec(models, &[("gsm", "a")], Some("a"))
        };
        RoutingTable::new(spec).expect("a valid table")
    };
    let one = lenient(&["a"]);
    assert_eq!(one.resolve(Text("/ckpt/1"), Absent).expect("routed").name, "a");
    assert_eq!(one.resolve(Text(""), Text("gsm")).expect("routed").name, "a");
    assert_eq!(code(one.resolve(NotText, Absent)), RoutingCode::InvalidModel);
    assert_eq!(
        code(one.resolve(Text("/ckpt/1"), Text("aime"))),
        RoutingCode::UnknownRouteKey
    );
    assert_eq!(
        code(lenient(&["a", "b"]).resolve(Text("c"), Absent)),
        RoutingCode::UnknownModel
    );
}

/// A model behind a router says so, with the router's URL.
#[test]
fn router_mode_is_part_of_the_answer() {
    let url = "http://10.0.0.9:3000".to_owned();
    let mode = RouteMode::Router { url };
    let table = RoutingTable::new(RoutingSpec {
        models: vec![("m".to_owned(), mode.clone())],
        ..RoutingSpec::default()
    })
    .expect("a valid table");
    assert_eq!(table.resolve(Absent, Absent).expect("routed").mode, &mode);
}

/// Every rule of a table has a message that names the culprit.
#[test]
fn contradictory_tables_are_refused() {
    let long = "k".repeat(MAX_NAME_BYTES + 1);
    let mut bad_url = spec(&["a"], &[], None);
    bad_url.models[0].1 = RouteMode::Router {
        url: "http://u:p@h:1".to_owned(),
    };
    for (spec, part) in [
        (spec(&[], &[], None), "no model"),
        (spec(&[""], &[], None), "0 bytes"),
        (spec(&["a", "a"], &[], None), "\"a\" is given twice"),
        (spec(&["a"], &[("k", "b")], None), "\"b\", which is not one"),
        (spec(&["a"], &[("", "a")], None), "route key \"\""),
        (spec(&["a"], &[(long.as_str(), "a")], None), "1025 bytes"),
        (spec(&["a"], &[("k", "a"), ("k", "a")], None), "\"k\" is given twice"),
        (spec(&["a"], &[], Some("b")), "default_model \"b\""),
        (bad_url, "router_url of model \"a\""),
    ] {
        let message = RoutingTable::new(spec).expect_err(part).to_string();
        assert!(message.contains(part), "{message:?} lacks {part:?}");
    }
}

/// A message lists a handful of thousands of keys, and repeats only the beginning of what was given.
#[test]
fn messages_are_bounded() {
    let mut spec = spec(&["a"], &[], None);
    spec.route_keys = (0..5000).map(|key| (format!("key-{key:04}"), "a".to_owned())).collect();
    let table = RoutingTable::new(spec).expect("a valid table");
    let message = table
        .resolve(Absent, Text(&"x".repeat(100_000)))
        .expect_err("refused")
        .to_string();
    assert!(message.len() < 500 && message.contains("and 4984 more"), "{message}");
}

proptest! {
    /// The rules, said once more in the words of the design: an answer is always one that a rule gives.
    #[test]
    fn agrees_with_the_rules(
        models in prop::collection::btree_set("[ab]{1,2}", 1..4),
        keys in prop::collection::btree_map("[xy]{1,2}", any::<prop::sample::Index>(), 0..3),
        default in prop::option::of(any::<prop::sample::Index>()),
        lenient in any::<bool>(),
        model in prop_oneof![Just(None), "[ab]{0,2}".prop_map(Some)],
        key in prop_oneof![Just(None), "[xy]{0,2}".prop_map(Some)],
    ) {
        let models: Vec<String> = models.into_iter().collect();
        let table = RoutingTable::new(RoutingSpec {
            role: "r".to_owned(),
            models: models.iter().map(|name| (name.clone(), RouteMode::Direct)).collect(),
            route_keys: keys.iter().map(|(key, index)| (key.clone(), index.get(&models).clone())).collect(),
            default_model: default.map(|index| index.get(&models).clone()),
            lenient_model: lenient,
            session_fields: Vec::new(),
        }).expect("a valid table");
        let route = table.resolve(
            model.as_deref().map_or(Absent, Text),
            key.as_deref().map_or(Absent, Text),
        );
        let ignores = lenient && models.len() == 1;
        let expected = if key.as_deref() == Some("") {
            Err(RoutingCode::InvalidRouteKey)
        } else if let Some(name) = model.as_ref().filter(|_| !ignores) {
            if name.is_empty() {
                Err(RoutingCode::InvalidModel)
            } else if models.contains(name) {
                Ok(name.clone())
            } else {
                Err(RoutingCode::UnknownModel)
            }
        } else if let Some(key) = &key {
            keys.get(key).map(|index| index.get(&models).clone()).ok_or(RoutingCode::UnknownRouteKey)
        } else if models.len() == 1 {
            Ok(models[0].clone())
        } else {
            default.map(|index| index.get(&models).clone()).ok_or(RoutingCode::ModelRequired)
        };
        prop_assert_eq!(route.map(|route| route.name.to_owned()).map_err(|error| error.code()), expected);
    }
}
