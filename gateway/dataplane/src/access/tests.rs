use super::*;

const LOOPBACK: &str = "127.0.0.1:80";

fn access(client: Option<&str>, admin: Option<&str>, local: &str) -> Access {
    Access::new(client, admin, false, local.parse().expect("an address")).expect("keys")
}

fn headers(lines: &[(&str, &'static str)]) -> HeaderMap {
    let parse = |(name, value): &(&str, &'static str)| {
        let name: HeaderName = name.parse().expect("a name");
        (name, HeaderValue::from_static(value))
    };
    lines.iter().map(parse).collect()
}

/// The admin key opens; nothing is 401, another key 403, and every prefix, extension and neighbour is another key.
#[test]
fn the_admin_key() {
    let access = access(None, Some("secret"), LOOPBACK);
    for (value, expected) in [
        (None, Err(Denied::NoAdminKey)),
        (Some("Basic secret"), Err(Denied::NotBearer)),
        (Some("secret"), Err(Denied::NotBearer)),
        (Some("Bearer"), Err(Denied::NotBearer)),
        (Some("Bearer "), Err(Denied::WrongAdminKey)),
        (Some("Bearer secre"), Err(Denied::WrongAdminKey)),
        (Some("Bearer secrets"), Err(Denied::WrongAdminKey)),
        (Some("Bearer secretsecret"), Err(Denied::WrongAdminKey)),
        (Some("Bearer Secret"), Err(Denied::WrongAdminKey)),
        (Some("bearer secret"), Ok(())),
        (Some("Bearer  secret"), Ok(())),
    ] {
        let shown = value.map(|value| ("authorization", value));
        assert_eq!(
            access.check_admin(&headers(shown.as_slice()), Origin::Listener),
            expected,
            "{value:?}"
        );
    }
    assert!(Denied::NotBearer.is_unauthenticated() && !Denied::WrongAdminKey.is_unauthenticated());
}

/// Without an admin key only a listener that this machine alone can reach is open.
#[test]
fn without_an_admin_key() {
    for (local, expected) in [
        (LOOPBACK, Ok(())),
        ("[::1]:80", Ok(())),
        ("[::ffff:127.0.0.1]:80", Ok(())),
        ("0.0.0.0:80", Err(Denied::Closed)),
        ("[::]:80", Err(Denied::Closed)),
        ("10.0.0.1:80", Err(Denied::Closed)),
    ] {
        assert_eq!(
            access(None, None, local).check_admin(&HeaderMap::new(), Origin::Listener),
            expected,
            "{local}"
        );
    }
}

/// The client key, or the admin key, as a bearer token or as `x-api-key`; without a client key everybody is a client.
#[test]
fn the_client_key() {
    let access = access(Some("client"), Some("admin"), LOOPBACK);
    for (lines, expected) in [
        (vec![], Err(Denied::NoClientKey)),
        (vec![("authorization", "Bearer client")], Ok(())),
        (vec![("authorization", "Bearer admin")], Ok(())),
        (vec![("x-api-key", "client")], Ok(())),
        (vec![("authorization", "Bearer other"), ("x-api-key", "client")], Ok(())),
        (vec![("authorization", "Bearer other")], Err(Denied::WrongClientKey)),
        (vec![("x-api-key", "clientclient")], Err(Denied::WrongClientKey)),
        (vec![("x-api-key", "")], Err(Denied::WrongClientKey)),
    ] {
        assert_eq!(access.check_client(&headers(&lines)), expected, "{lines:?}");
    }
    let keyless = super::Access::new(None, Some("admin"), false, LOOPBACK.parse().expect("an address"));
    assert_eq!(keyless.expect("keys").check_client(&HeaderMap::new()), Ok(()));
}

/// Health, the index and the API description need no key; metrics only when so configured; all else does.
#[test]
fn public_paths() {
    let open = access(Some("client"), None, LOOPBACK);
    let none = HeaderMap::new();
    for path in [
        "/",
        "/health",
        "/rollout/health",
        "/openapi.json",
        "/metrics",
        "/ui",
        "/ui/app.js",
    ] {
        assert_eq!(open.check_control(path, &none), Ok(()), "{path}");
    }
    for path in [
        "/status",
        "/engines",
        "/a/engines",
        "/v1/models",
        "/workers",
        "/nothing",
        "/a/metrics",
        "*",
    ] {
        assert_eq!(open.check_control(path, &none), Err(Denied::NoClientKey), "{path}");
    }
    let strict = Access::new(Some("client"), None, true, LOOPBACK.parse().expect("an address")).expect("keys");
    assert_eq!(strict.check_control("/metrics", &none), Err(Denied::NoClientKey));
}

/// Our keys never go on, wherever they stand; whatever else a client shows to the engine does (B50).
#[test]
fn b50_our_keys_are_stripped() {
    let access = access(Some("client"), Some("admin"), LOOPBACK);
    let mut map = headers(&[
        ("authorization", "Bearer admin"),
        ("x-api-key", "client"),
        ("x-other", "client"),
    ]);
    access.strip(&mut map);
    assert_eq!(map.len(), 1);
    // The place of the one with the form of the other.
    let mut map = headers(&[("authorization", "Bearer client"), ("x-api-key", "Bearer admin")]);
    access.strip(&mut map);
    assert!(map.is_empty(), "{map:?}");
    let mut map = headers(&[("authorization", "Bearer engine"), ("x-api-key", "client")]);
    access.strip(&mut map);
    assert_eq!(map[AUTHORIZATION], "Bearer engine");
    assert!(!map.contains_key(API_KEY));
}

/// Without a key, what a page of another site sends is refused, under whatever name it reaches this machine.
#[test]
fn b51_foreign_origins() {
    let access = access(None, None, LOOPBACK);
    for (origin, host, foreign) in [
        ("http://127.0.0.1:8080", "127.0.0.1:8080", false),
        ("http://localhost:8080", "localhost:8080", false),
        ("https://[::1]", "[::1]", false),
        ("http://localhost:3000", "localhost:8080", true),
        ("http://evil.example", "127.0.0.1:8080", true),
        // A name of the page's site that resolves to this machine.
        ("http://evil.example:8080", "evil.example:8080", true),
        ("null", "127.0.0.1:8080", true),
        ("", "", true),
    ] {
        let map = headers(&[("origin", origin), ("host", host)]);
        let expected = if foreign { Err(Denied::ForeignOrigin) } else { Ok(()) };
        assert_eq!(
            access.check_admin(&map, Origin::Listener),
            expected,
            "{origin} at {host}"
        );
    }
    let keyed = super::tests::access(None, Some("admin"), LOOPBACK);
    let map = headers(&[("origin", "http://tools.example"), ("authorization", "Bearer admin")]);
    assert_eq!(keyed.check_admin(&map, Origin::Listener), Ok(()));
}

/// The control app learns what the check said, in one word.
#[test]
fn verdicts() {
    let keyed = access(None, Some("admin"), LOOPBACK);
    for (value, verdict) in [
        ("Bearer admin", "admin"),
        ("Bearer x", "wrong-key"),
        ("Basic x", "no-key"),
    ] {
        assert_eq!(keyed.verdict(&headers(&[("authorization", value)])), verdict);
    }
    assert_eq!(access(None, None, "0.0.0.0:1").verdict(&HeaderMap::new()), "closed");
}

/// A key that no client could send is refused at the start, without its text.
#[test]
fn impossible_keys() {
    for key in ["", "a b", "ä", "a\n"] {
        let local = LOOPBACK.parse().expect("an address");
        let refused = Access::new(Some(key), None, false, local).err().expect("refused");
        assert!(refused.starts_with("client_key is refused") && (key.is_empty() || !refused.contains(key)));
        assert!(Access::new(None, Some(key), false, local).is_err(), "{key:?}");
    }
}

/// The key may be the password of any user, which is how it travels in a URL: neither a place in a client's
/// configuration nor a line of its code is needed.
#[test]
fn a_key_in_a_url() {
    let access = access(Some("client"), Some("admin"), LOOPBACK);
    // "x:admin", "x:client", "admin:x", "x:admins".
    for (value, admin, client) in [
        ("Basic eDphZG1pbg==", true, true),
        ("basic eDphZG1pbg==", true, true),
        ("Basic eDpjbGllbnQ=", false, true),
        ("Basic YWRtaW46eA==", false, false),
        ("Basic eDphZG1pbnM=", false, false),
    ] {
        let mut map = headers(&[("authorization", value)]);
        assert_eq!(access.check_admin(&map, Origin::Listener).is_ok(), admin, "{value}");
        assert_eq!(access.check_client(&map).is_ok(), client, "{value}");
        access.strip(&mut map);
        assert_eq!(map.is_empty(), client, "{value}");
    }
}
