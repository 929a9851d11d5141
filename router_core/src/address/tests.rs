use super::{Address, without_user_information};
use crate::error::Error;
use proptest::prelude::*;

/// Every way of writing the same engine gives the same authority.
#[test]
fn equal_engines_have_one_form() {
    for (text, authority, host, port) in [
        ("h:1", "h:1", "h", 1),
        ("http://h:1", "h:1", "h", 1),
        ("HTTP://H:1/", "h:1", "h", 1),
        ("h:1/", "h:1", "h", 1),
        (
            "Node_7.Svc.Cluster.local:65535",
            "node_7.svc.cluster.local:65535",
            "node_7.svc.cluster.local",
            65535,
        ),
        ("node.example.:80", "node.example.:80", "node.example.", 80),
        ("10.0.0.1:00080", "10.0.0.1:80", "10.0.0.1", 80),
        ("[::1]:30000", "[::1]:30000", "::1", 30000),
        ("::1:30000", "[::1]:30000", "::1", 30000),
        ("http://[2001:DB8:0:0::1]:1/", "[2001:db8::1]:1", "2001:db8::1", 1),
        ("http://[::FFFF:10.0.0.1]:1", "10.0.0.1:1", "10.0.0.1", 1),
        ("2001:db8::1:30000", "[2001:db8::1]:30000", "2001:db8::1", 30000),
        ("[fe80::1%eth0]:1", "[fe80::1%eth0]:1", "fe80::1%eth0", 1),
        ("fe80::1%Eth0.5:1", "[fe80::1%Eth0.5]:1", "fe80::1%Eth0.5", 1),
        (
            "xn--bcher-kva.example:1",
            "xn--bcher-kva.example:1",
            "xn--bcher-kva.example",
            1,
        ),
        ("3com.example:1", "3com.example:1", "3com.example", 1),
    ] {
        let address = Address::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
        assert_eq!(address.authority(), authority, "{text}");
        assert_eq!(address.to_string(), authority, "{text}");
        assert_eq!(address.url(), format!("http://{authority}"), "{text}");
        assert_eq!(address.host(), host, "{text}");
        assert_eq!(address.port(), port, "{text}");
    }
}

/// With and without TLS are two addresses of one authority.
#[test]
fn the_scheme_belongs_to_the_address() {
    let [plain, tls] = ["http://h:1", "HTTPS://H:1/"].map(|text| Address::parse(text).expect("an address"));
    assert_eq!((plain.authority(), tls.authority()), ("h:1", "h:1"));
    assert_eq!(
        (plain.url(), tls.url()),
        ("http://h:1".to_owned(), "https://h:1".to_owned())
    );
    assert!(tls.is_tls() && !plain.is_tls() && plain != tls);
}

/// Everything that is not an engine's root is refused, naming the text and the rule.
#[test]
fn every_rule_is_named() {
    for (text, fragment) in [
        ("", "host is missing"),
        ("http://", "host is missing"),
        ("/", "host is missing"),
        (":30000", "host is missing"),
        ("h", "port is missing"),
        ("h:", "port is missing"),
        ("[::1]", "port is missing"),
        ("[::1]30000", "port is missing"),
        ("::1", "IPv6"),
        ("[::1", "closing bracket"),
        ("h:0", "1 to 65535"),
        ("h:65536", "1 to 65535"),
        ("h:99999999999999999999", "1 to 65535"),
        ("h:+80", "1 to 65535"),
        ("h:-1", "1 to 65535"),
        ("h:8o", "1 to 65535"),
        ("h:80 ", "1 to 65535"),
        ("https://", "host is missing"),
        ("https://h", "port is missing"),
        ("ftp://h:1", "scheme must be http or https"),
        ("://h:1", "scheme must be http or https"),
        ("user@h:1", "user information"),
        ("http://user:secret@h:1", "user information"),
        ("h:1@0", "user information"),
        ("h:1?x=1", "query"),
        ("h:1/#top", "fragment"),
        ("h:1/v1", "path"),
        ("h:1//", "path"),
        ("http:///h:1", "path"),
        ("[h]:1", "only an IPv6 address"),
        ("[10.0.0.1]:1", "only an IPv6 address"),
        ("[]:1", "only an IPv6 address"),
        ("1:2:3:4:5:6:7:8", "IPv6"),
        ("[:::1]:1", "IPv6"),
        ("[fe80::1%]:1", "zone id is empty"),
        ("[fe80::1%e/0]:1", "path"),
        ("[fe80::1%e 0]:1", "zone id may have"),
        (" h:1", "host may have only"),
        ("h h:1", "host may have only"),
        ("h\n:1", "host may have only"),
        ("*:1", "host may have only"),
        ("bücher.example:1", "xn--"),
        ("a..b:1", "empty part"),
        (".:1", "empty part"),
        (".a:1", "empty part"),
        ("1.2.3.999:1", "IPv4"),
        ("127.1:1", "IPv4"),
        ("2130706433:1", "IPv4"),
        ("0x7f000001:1", "IPv4"),
        ("127.0.0.0X1:1", "IPv4"),
        ("010.0.0.1:1", "IPv4"),
        ("10.0.0.1.:1", "IPv4"),
    ] {
        match Address::parse(text) {
            Err(Error::InvalidAddress { value, rule }) => {
                assert_eq!(value, without_user_information(text));
                assert!(
                    rule.contains(fragment),
                    "{text:?} was refused because {rule:?}, not {fragment:?}"
                );
            }
            other => panic!("{text:?} gave {other:?}"),
        }
    }
    assert!(Address::parse(&format!("{}:1", "a".repeat(64))).is_err());
    assert!(Address::parse(&format!("{}:1", "a.".repeat(127))).is_err());
}

/// Text made of the pieces that addresses are made of, in any order.
fn almost_an_address() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        Just("http://".to_owned()),
        Just("https://".to_owned()),
        "[:\\[\\]/@?#%.]",
        "[0-9]{1,5}",
        "[a-zA-Z_-]{1,6}",
        Just("::".to_owned()),
        Just("10.0.0.1".to_owned()),
        Just("fe80::1%eth0".to_owned()),
        any::<char>().prop_map(String::from),
    ];
    prop::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

/// Normalising is idempotent, whatever was accepted.
fn check(text: &str) -> Result<(), TestCaseError> {
    if let Ok(address) = Address::parse(text) {
        let plain = Address::parse(address.authority()).expect("a normal form");
        prop_assert_eq!(plain.authority(), address.authority());
        prop_assert!(!plain.is_tls());
        prop_assert_eq!(&Address::parse(&address.url()).expect("a url"), &address);
        prop_assert!(!address.host().is_empty() && !address.host().contains(['[', ']', '/', '@']));
    }
    Ok(())
}

proptest! {
    /// No text makes the parser panic.
    #[test]
    fn arbitrary_text_is_refused_or_normalised(text in ".*") {
        check(&text)?;
    }

    /// Nor does text that looks nearly right.
    #[test]
    fn near_addresses_are_refused_or_normalised(text in almost_an_address()) {
        check(&text)?;
    }
}

/// A password never reaches an error, and so no log.
#[test]
fn user_information_is_masked_in_the_error() {
    for (text, shown) in [
        ("http://user:secret@h:1", "http://***@h:1"),
        ("secret@h:1", "***@h:1"),
        ("http://a:secret@b:secret@h:1", "http://***@h:1"),
    ] {
        let error = Address::parse(text)
            .expect_err("user information is refused")
            .to_string();
        assert!(error.contains(shown) && !error.contains("secret"), "{error}");
    }
}
